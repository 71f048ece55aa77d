//! The golden bytes of the examples, in their order: hex, in which `07*32` is the byte 07
//! thirty-two times. Numbers from 251 on begin with fb, fc or fd (docs/PROTOCOL.md, "On the wire").

/// The domain tags of the kinds of message, by their number on the wire.
pub(crate) const TAGS: [&str; 18] = [
    "heartbeat",
    "ready",
    "query",
    "status",
    "report",
    "roster",
    "accept",
    "refuse",
    "stalled",
    "done",
    "commit",
    "regroup",
    "join",
    "leaving",
    "pass-notice",
    "ground",
    "opened",
    "prepared",
];

/// Name of the example, its body, its signature.
pub(crate) const MESSAGES: &[(&str, &str, &str)] = &[
    (
        "heartbeat",
        "00 fb fb 00 04 fc 70 11 01 00 e4*32 05 e4*32 00 00 00 5a*16 01 01 02 fb 2c 01 01 00 01 0b*32 \
         14 fd 00*4 02 00 00 00 04 02 01 00",
        "6cfd8cd06eb553e42f08b314418430665701dd398d7a54de4576c42c617416fa \
         8c74ee3521347c255b6ca8f62551e077cb587ec70fa90055feb2cd9d2f11fb04",
    ),
    (
        "heartbeat, joined",
        "00 fb fb 00 04 fc 70 11 01 00 e4*32 05 e4*32 00 01 67*32 00 5a*16 01 07 02 fb 2c 01 01 00 01 \
         0b*32 14 fd 00*4 02 00 00 00 04 02 01 00",
        "b2cf1ff3b81af38c221f06c1e897e29ee6d0d79bc7dbbcfd66bd80ad8e4f46e2 \
         e76cd60f55d834eb3724ae7945347f16132e3492777b671bd6297a0d9d67d309",
    ),
    (
        "heartbeat, with a ticket",
        "00 fb fb 00 04 fc 70 11 01 00 e4*32 05 e4*32 00 00 00 5a*16 01 01 02 fb 2c 01 01 00 01 0b*32 \
         14 fd 00*4 02 00 00 00 04 02 01 01 00 52*32 1e*32 05 fb 2c 01 fd 00*4 01 00 00 00 03 62 6f 62 \
         51*64 0a*32 54*64",
        "310e309c9622eedfeb9412452f7cf1c29666769d6238247cb0cabec3f2e84f8b \
         2b133ea27fcdb9a00beeb01380c14be6f0aa5fe16ccf08efd260ddad2c23ee02",
    ),
    (
        "heartbeat, closed and unlinked",
        "00 fb fb 00 04 fc 70 11 01 00 e4*32 05 e4*32 00 00 01 5a*16 01 01 02 fb 2c 01 01 02 a5 03 01 \
         0b*32 14 fd 00*4 02 00 00 00 04 02 01 00",
        "5c247b500c80bf11bfbfcffde0df2c1fbef5e3047156a0bab620643cf54a4ef8 \
         bb5524a7247a2d9edc7a4f133ffc6e8ea4e57a8a01b584e73d62dc4c7f9ad903",
    ),
    (
        "ready",
        "01 05 e4*32 00 01 fb 2c 01 00 00 c0 3f 00 00 20 40",
        "31fe1f8f967262675d0970cc85dd02bbb36a5d5eeb967ee51a7fc79fe6b11b94 \
         41afdf66d39a4257431ac47f8c641631a519f5272790fd6a02ea1f7944c92400",
    ),
    (
        "query",
        "02 05 e4*32 00 02",
        "d5c944006fa5c47c24885bfab69878704d1c782dd6d53ed330c2333c12415749 \
         f27a96422bcca1efa660433c761d8b338f6668639718ccfa45978a5722468200",
    ),
    (
        "status, nothing",
        "03 05 e4*32 00 5a*16 fd 00*4 01 00*5",
        "aeb755c05a48b1575168a85cebc72d6e5e86974e56349dd0739ea5a96e7dc8d9 \
         f721c653c7bf0d96b7fa7280b209a576a0157fe3c2ec58870b23f507650b0607",
    ),
    (
        "status, voted",
        "03 05 e4*32 00 5a*16 fd 00*4 01 00 00 00 01 00 02 72*32 01",
        "9e32cab80010b2aa2ad9df7bedecde6641b123024d2a069f82cb056761ef3972 \
         a724ac5e6b2bf03fe00089bc49c541f24a625c11f8123d589462907888da9f06",
    ),
    (
        "report, nothing",
        "04 05 e4*32 00 02 00 00 02 0a*32 0b*32",
        "a98cb9e7bd8d09ab69b18975133e2e2889039104b6b03ada5edc8358864df692 \
         7814689fb681eda9de2bd1e5fa7c2f9b84aff82039cea22302f117642d3c1c0a",
    ),
    (
        "report, finished chunks",
        "04 05 e4*32 00 02 01 71*32 01 c4*32 51*64 00 02 0a*32 0b*32",
        "687148703da60b242cb5b714d1d2d275fccbe8e11ba35573d2494087c29c2fc0 \
         7eb032bfa265aba992ff1e5897a1b14403f2f5a949051c544be7d642897bd80c",
    ),
    (
        "report, ready",
        "04 05 e4*32 00 02 00 01 01 fb 2c 01 02 0a*32 0b*32",
        "6b583d209841a8498ba55b527636b98ac075f53a874abea1b07e4f181e0444e4 \
         a44a5c4dfa25429e3c1792aac73c50cf28a65cfe40a6d10dee9606380a78c503",
    ),
    (
        "roster, free",
        "05 05 e4*32 00 01 0a*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 5b*16 01 00*4",
        "b9d33c5c4b99d610657313fe576a625180328acf5129432396e2fcb9156ab1fa \
         445b2b28e6af158f1d2a9c65e0b002aa6b67bc9db9d98972d1b49c90c1982403",
    ),
    (
        "roster, repairing",
        "05 05 e4*32 00 02 0a*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 5b*16 01 00 01 0a*32 5a*16 00 00 \
         51*64 00 01 71*32 02 0a*32 5a*16 01 fb 2c 01 0c*32 5c*16 01 64 01 01 c4*32 51*64 02 02 04 06 \
         07 01 0a*32",
        "017bfbcf00c84df12c5e3199a93d13c6d956a0ebc6539ae96db722f7b4736e77 \
         8f1efc0a2ba2ac918c5dfd22b99ce15b44ed6426c3fdca1880f4223546f3420b",
    ),
    (
        "roster, adopting",
        "05 05 e4*32 01 67*32 03 0a*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 5b*16 01 00 02 0a*32 5a*16 00 \
         00 51*64 0b*32 5b*16 01 00 02 72*32 00 51*64 01 05 e4*32 00 00 d0*32 02 0a*32 5a*16 01 fb 2c \
         01 0b*32 5b*16 01 00 00 00",
        "2eea6363699e65af5d72bbe9d43a4d6c688460965bfdbf0346db393978d20522 \
         c67b80c8e25f1420cafbead5e52dbecfab9aa27a4309522ce5e09e2440b2ad05",
    ),
    (
        "roster, admitting",
        "05 05 e4*32 00 01 0a*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 5b*16 01 00 00 02 02 52*32 01 00*32 \
         01 03 00 0b*32 01 1e*32 01 02 0c*32 51*64 52*32 02 b0*32 00 04 e4*32 72*32 51*64 02 00 52*32 \
         1e*32 05 fb 2c 01 fd 00*4 01 00 00 00 03 62 6f 62 51*64 0a*32 54*64 01 52*32 0b*32 09 51*64 00",
        "6db7b3199a5c36b5cd1296fcae35710cb3389fc977e999a08fce198abb171450 \
         5f75c89a530b3aaccc580d4e79f94d9d39a76889bf0490a49940febf2610590a",
    ),
    (
        "accept",
        "06 05 e4*32 00 70*32",
        "107d3039c414dc44618a32267bb55d969b72d2e5a743315f84e243a30e35dcbc \
         1878b94370748d514fff4f0303d8269863eebec55b1e55c1661d38aecd9e9403",
    ),
    (
        "refuse, promised",
        "07 05 e4*32 00 70*32 03 04 fc 70 11 01 00 e4*32 00",
        "55e04fb05d6842b5b1e9d1c3ee90db9a6f670805f02038f75e04576729feae78 \
         e230eb1a2396a54dc5adac549c258be5c8bd5d2d3428e1c7b6a2703ea176fd01",
    ),
    (
        "refuse, weight",
        "07 05 e4*32 00 70*32 03 04 fc 70 11 01 00 e4*32 01",
        "3f606e2029808f9ab3c62075d8fd0c27e0640728cc392dba098182357519e681 \
         ce504acef4ea944d229963d84c268605b090dad560b953f8bfaad9c055312309",
    ),
    (
        "refuse, rule",
        "07 05 e4*32 00 70*32 03 04 fc 70 11 01 00 e4*32 02",
        "9b811b4139bb56a6dbe1a2b93a5f390368abe6044d5bd5defcacb3ae94213cd6 \
         e117d797536e2ce7794f21a13810b708d0d0a7994e89921386268906ebf2ee04",
    ),
    (
        "refuse, present",
        "07 05 e4*32 00 70*32 03 04 fc 70 11 01 00 e4*32 03 0b*32",
        "37c27554b6af50dcdf6d6fe66f609bf2c103aa18179c9bfdc35f0f8171448115 \
         c5faa51f00abd2658c5e936fc3a35441c86d7680c1cc4165790015fb2e043a08",
    ),
    (
        "refuse, absent",
        "07 05 e4*32 00 70*32 03 04 fc 70 11 01 00 e4*32 04 0b*32",
        "6313ace15d515575ef2d3531d396234845c41af59464e0809d9f50829da57e5d \
         122d562adc65917fb253ab6798e6c154278d05e7d28df68e4fc6045d45ee5d0e",
    ),
    (
        "refuse, lacks",
        "07 05 e4*32 00 70*32 03 04 fc 70 11 01 00 e4*32 05 0b*32",
        "54e42590c70a2dcf0b8d8e5ad92478a0fd883deb485c31fe9c2bf0695661dec6 \
         df51de7152d2111b8cb0a4895f83a0aaffb0833433ae1068ab59cbac63dcdb06",
    ),
    (
        "refuse, places",
        "07 05 e4*32 00 70*32 03 04 fc 70 11 01 00 e4*32 06",
        "6986eecc495cd8f30415c74c4e2bb67d2978fb6d54e1b13c463adb4e94c722db \
         5da46f0d8e5e150c14e1773151848b5ce4c9fe400314c01897b6046962386c09",
    ),
    (
        "refuse, early",
        "07 05 e4*32 00 70*32 03 04 fc 70 11 01 00 e4*32 07 fb 2c 01",
        "2bb370904ed39c864706c094c5ca14a09c13eab2af9b740d78bf4296472ef0ac \
         4f1d7f1076cf024268902c9d95835caad6dc70b251b83f1363783c90955a090b",
    ),
    (
        "refuse, notice",
        "07 05 e4*32 00 70*32 03 04 fc 70 11 01 00 e4*32 08 07 77*32",
        "1fa62a37fb6df88f73e6f31bfc9068277442a7235e2f9d94a2166189edc4733b \
         b94e14bb7423515e7dd8bd5788aded4de8c05664be17e901d109c1e53cbdfe02",
    ),
    (
        "refuse, expired",
        "07 05 e4*32 00 70*32 03 04 fc 70 11 01 00 e4*32 09 0b*32",
        "d1e07ce0f66371435bcfd44ff5cc82037c920b7b3ff81bd9600757ca0fa6e3ce \
         c5a6ae4d8650369f73647da0bec55d798fcf513a8bc32b09432a48c87a9df30d",
    ),
    (
        "refuse, unproven",
        "07 05 e4*32 00 70*32 03 04 fc 70 11 01 00 e4*32 0a",
        "a742c25a1bec84fea48916dbb3cc0ea49edd713012f7a86c6cecc8ed7e6284a9 \
         f4563d5c6732644d4147c15bdb1a7145c45031acac018d3380f345fcd352d807",
    ),
    (
        "stalled",
        "08 05 e4*32 00 70*32 01 0b*32 05",
        "9c2480d8ba937c1a211709c7716e8ceb5f221879472e5074de5bef14e4771442 \
         3d42a4cd7b9e379ade02da4079745ec893948d692cb7ce187662176d18a4360c",
    ),
    (
        "quiet",
        "08 05 e4*32 00 70*32 00 00",
        "5e1f90d2aba4e15d58fde93ee2c59436f7b75463850817fc5d599a5f563db47e \
         38f9b2e100f163d5b027ef08fed178e97cd82bfd994d0afc2d8d7e90d1298002",
    ),
    (
        "done",
        "09 05 e4*32 00 70*32 72*32 d0*32",
        "7898578380808aeb312a609eebd5673106d2bc7d0f211df54cdc422feb3d7070 \
         e353480ebcd0552d943fad40a46fdbc09e82983c9b1a920d561e5e69038d5506",
    ),
    (
        "commit, whole",
        "0a 00 05 e4*32 00 00 d0*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 5b*16 01 00 00 05 e4*32 00 \
         01 0a*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 5b*16 01 00*4 01 0a*32 51*64 01 05 e4*32 00 \
         01 0a*32 01 0a*32 5a*16 00 01 0a*32 05 e4*32 00 67*32 5a*16 00 51*64 00",
        "97da1ac42f4435cba2ba9635f75d614714ca7cc04a9ac5c4be7e562278ce8c25 \
         c6e59edf19bff82f3d39076e559d61db783001137bb91faab1a15c119b70300d",
    ),
    (
        "commit, whole, of a repaired ring",
        "0a 00 05 e4*32 00 00 d0*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 5b*16 01 00 01 71*32 02 0a*32 \
         5a*16 01 fb 2c 01 0c*32 5c*16 01 64 02 02 04 06 07 05 e4*32 00 02 0a*32 02 0a*32 5a*16 01 fb \
         2c 01 0b*32 5b*16 01 00 01 0a*32 5a*16 00 00 51*64 00 01 71*32 02 0a*32 5a*16 01 fb 2c 01 \
         0c*32 5c*16 01 64 01 01 c4*32 51*64 02 02 04 06 07 01 0a*32 01 0a*32 51*64 00",
        "b10a4119feaf730b7607488eb0cdb76a25f3cbf2a2c3719a1c1ef2eb05f3e9b2 \
         aa1d98e81d3ca17ab5f3637cb1e6b4f578ed166cf4477a21f6b9f109e2b3e103",
    ),
    (
        "commit, whole, admitting",
        "0a 00 05 e4*32 00 01 00 01 01 52*32 0b*32 09 51*64 d0*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 \
         5b*16 01 00 00 05 e4*32 00 01 0a*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 5b*16 01 00 00 02 00 01 \
         01 52*32 0b*32 09 51*64 00 01 0a*32 51*64 00",
        "03f9071cb4ef3359d58e53f8530174659edfa82978107245ef590e7435989adf \
         cf72e1a0d87caa31884ce68a5b369fbef42f0b1f0e3659f16d1263d221e94301",
    ),
    (
        "commit, short",
        "0a 01 05 e4*32 00 70*32 72*32 d0*32 01 0a*32 51*64",
        "a7768c6380a81bce769e750f0cb0746db71193a7fe1999c673a41d10e22a467a \
         4e8f00155f46de5310024b57fe832f9b95fcefee198a29b46ad29410801a3c0a",
    ),
    (
        "regroup",
        "0b 05 e4*32 00 01 0a*32 01 0a*32 5a*16 05 0b*32 5b*16 00 0c*32 5c*16 01 0d*32 5d*16 02 0e*32 \
         5e*16 03 0f*32 5f*16 04",
        "31734fa29db70779bd58665f95f1cb11d33aa0d1e1e472bdc1292a33de174b56 \
         9ad7bc65a5fcc4adebd6e0cba2496879287bb9b706d6f94baf3ed73d557aec04",
    ),
    (
        "regroup, with a ticket",
        "0b 05 e4*32 02 00 01 01 52*32 0b*32 09 51*64 01 0a*32 01 0a*32 5a*16 01 0b*32 5b*16 05",
        "23f976cd81ec9c8578853cf04b1a2195406b29ae110c2a0981cae579752df1cf \
         49b1610a65981208be0b5a65752b3ae00b78a9ea9e5b43587b7dabcc322c0307",
    ),
    (
        "regroup of a regroup, with a ticket",
        "0b 05 e4*32 03 67*32 00 01 01 52*32 0b*32 09 51*64 01 0a*32 01 0a*32 5a*16 05 0b*32 5b*16 00 \
         0c*32 5c*16 01 0d*32 5d*16 02 0e*32 5e*16 03 0f*32 5f*16 04",
        "85ea8f1cbe681c359ee33080574d51c296fb4059a902593b8ca36b159896168a \
         0ddcb71c9042529799245990b4ef4adc4c30584449dcf825750a570c8158e109",
    ),
    (
        "join, nothing",
        "0c 05 e4*32 00 67*32 5a*16 00",
        "b02199942a22dd21bbce986aff83c61cc294eb2614822fc57788db723844682a \
         9b050cd3680c772a752990ec9af50729a34188592c9c450c8352d92389f15300",
    ),
    (
        "join, voted",
        "0c 05 e4*32 00 67*32 5a*16 01 00 02 72*32",
        "116d18f09eb199c3276fe14f4a1c3b5da7cd105449c06cbf0e115e2c8d491adf \
         2f38fdf7315e03465cbf8f4b893b81ddb556e9ee594fc58e0661e1178bae8701",
    ),
    (
        "leaving",
        "0d 04 fc 70 11 01 00 e4*32 01",
        "abf0a4172011da4b17ad5f5d7a91f3b6c6f99e259316be3e140a82ce92e0c8ff \
         33b9d1671afb2cfc526ec3206964d6bfd9e8849c7a4291ba51851a74ccc91b0a",
    ),
    (
        "attestation",
        "0e 52*32 02 b0*32 00 04 e4*32 72*32 51*64",
        "881b332eb2dbe8ecfdd15c52e53ca690f4de6d5056ab3086a7f11c56df8d77ab \
         c117c133d9516c9466e814d6f8d5e24e5953bc764383f76c3fef0d4e0f3c5801",
    ),
    (
        "membership update",
        "0e 52*32 01 00*32 01 03 00 0b*32 01 1e*32 01 02 0c*32 51*64",
        "8b6cdb8f1a549319a7ec54d891301fcc9ac5dcaa645469df04ed189ba1782090 \
         346a0b26058dda34ca35e7c4447706647a3b70b68b27893aac995271396ae10f",
    ),
    (
        "ground",
        "0f 05 e4*32 00 01 05 e4*32 00 01 0a*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 5b*16 01 00*4 d0*32 01 \
         0a*32 51*64",
        "7ff6923919b15118c96c0715662361c45824a5dfd60b241ca15e46f85da2cd81 \
         1c634a09665344fb905bf6ad1c3df40be17fcd5f1399388b394fe74ededa770c",
    ),
    (
        "opened",
        "10 05 e4*32 00 05 e4*32 00 01 0a*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 5b*16 01 00*4 \
         01 0a*32 51*64",
        "56432bc02d8aa7950708b42e1f66b51b1a4b2041e48ca3b8211cdef1080cc31b \
         6e2f163117934af721a8267d1b0a3785ff49d65a7273140851d7fa9369010b08",
    ),
    (
        "prepared",
        "11 05 e4*32 00 70*32 d0*32",
        "db9f90d3cdef9a9c44de7058a1d69130ee3f39e8b1e1260da474409a2f371f64 \
         2fd9882a117ec1528e12f85b81fbd94b516b5337131373031df62f4da745f60b",
    ),
];

pub(crate) const REQUESTS: &[(&str, &str)] = &[
    ("lineage", "00 00 05"),
    ("chain", "00 01 05"),
    ("update", "01 d0*32 fc 00 00 10 00"),
    ("table", "02 e4*32 fc 00 00 10 00"),
    ("piece", "03 e4*32 07"),
    ("chunk", "04 71*32 01 fc 00 00 10 00"),
    ("file", "05 72*32 fc 00 00 10 00"),
    ("tree", "06 73*32 fc 00 00 10 00"),
    ("data", "07 73*32 fb 2c 01"),
    ("picture", "08"),
];

pub(crate) const ANSWERS: &[(&str, &str)] = &[
    (
        "lineage",
        "00 01 05 e4*32 00 00 d0*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 5b*16 01 00 00 05 e4*32 00 \
         01 0a*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 5b*16 01 00*4 01 0a*32 51*64 01 05 e4*32 00 \
         01 0a*32 01 0a*32 5a*16 00 01 0a*32 05 e4*32 00 67*32 5a*16 00 51*64 00 04 fc 70 11 01 \
         00 e4*32 01 05 e4*32 00 01 0a*32 01 0a*32 5a*16 00 01 0a*32 05 e4*32 00 67*32 5a*16 00 \
         51*64 00",
    ),
    ("chain", "01 01 04 e4*32 72*32"),
    ("picture", "02 04 fc 70 11 01 00 e4*32 01 0a*32 04 04 fb 2c 01 00 00 20 40 28 fc 00 00 10 00"),
];
