//! The golden bytes of the examples, in their order: hex, in which `07*32` is the byte 07 thirty-two
//! times, and numbers from 251 on begin with fb, fc or fd (docs/PROTOCOL.md, "On the wire").

/// The domain tags of the kinds of message, by their number on the wire.
pub(crate) const TAGS: [&str; 13] = [
    "heartbeat",
    "ready",
    "query",
    "status",
    "roster",
    "accept",
    "refuse",
    "lost",
    "done",
    "commit",
    "regroup",
    "join",
    "leaving",
];

/// Message, body, signature.
pub(crate) const MESSAGES: &[(&str, &str, &str)] = &[
    (
        "heartbeat",
        "00 fb fb 00 04 fc 70 11 01 00 e4*32 05 e4*32 00 00 5a*16 01 01 02 fb 2c 01 01 01 0b*32 \
         14 fd 00*4 02 00 00 00 04",
        "929ab4091b19f96bcfc661db8cd1446c672738b44f747c0581873744c6d20431 \
         c7f3e9fc377880f300ec4df6029757dacf6abd235e3955a45946a38f4a07d200",
    ),
    (
        "heartbeat, joined",
        "00 fb fb 00 04 fc 70 11 01 00 e4*32 05 e4*32 00 01 67*32 5a*16 01 07 02 fb 2c 01 01 01 \
         0b*32 14 fd 00*4 02 00 00 00 04",
        "0ec788cf12b9b4315486f8ecee5c8ec2d39c99e4fdd2036775a2e0800488b4d9 \
         86ad7ae4917d4f60a3e24e8a621b05dc52a0763a45cfcb13fcac120eb30a9d0f",
    ),
    (
        "ready",
        "01 05 e4*32 00 01 fb 2c 01 00 00 c0 3f",
        "bdfdd9bb03a7b79478eb065ab5f31d2e401f282e7d52084739448ceff4755720 \
         4ccf5e1c9f7c8174d051c6a7a39e4b36ef10d12cbf7d717338297a973be6a805",
    ),
    (
        "query",
        "02 05 e4*32 00 02 01 0b*32",
        "4e0a9e5c9127213f30b4fcd8e5a3044c758f0eedb758d032e8af7b755d0181dd \
         28b3336de1ac26c16815aa91f4a5d5ff6dcc84a47814b2085485dfacbb505500",
    ),
    (
        "status, nothing",
        "03 05 e4*32 00 5a*16 02 00*4 02 0a*32 0b*32",
        "fa0ce62fec2173f2289f9461e4ad4314b93da40d79a1010ff6bd88cd3c02b97c \
         3a419fa7e245e98f38f4d3ce26e0e196910e1c06fd732c9d06528ac18c49be06",
    ),
    (
        "status, finished chunks",
        "03 05 e4*32 00 5a*16 02 00 00 01 71*32 01 c4*32 51*64 00 02 0a*32 0b*32",
        "831b64b37bfeeaaf9581e3ad4a7c635030f14d714c8c2849cdf55e4ba82bec3c \
         3854f4e73d2a2c8bf032b4d979a1e4e8faf0fc89c8f2e8799abcf42c36232f09",
    ),
    (
        "status, voted and ready",
        "03 05 e4*32 00 5a*16 02 01 01 02 05 e4*32 00 00 d0*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 \
         5b*16 01 00*4 01 01 fb 2c 01 02 0a*32 0b*32",
        "be271c2b730f307e990238c77411fc74fb1e5cb5028bc37db7a92e94bbfd5aab \
         2df1eaffbf716d4dda7744d31feee8f22cd717a28f9a6a20a0b25cb8bbaea50f",
    ),
    (
        "roster, free",
        "04 05 e4*32 00 01 0a*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 5b*16 01 00*4",
        "328d817521621733acfcf808ef8592088f7014dd60aaa9489732d3bb6dc9fc6c \
         21a0a7f0747ff296551527fd4c026a1b5a39a4c09a23f3a9d25786e598fbbb06",
    ),
    (
        "roster, repairing",
        "04 05 e4*32 00 02 0a*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 5b*16 01 00 01 0a*32 5a*16 00 \
         01 71*32 02 0a*32 5a*16 01 fb 2c 01 0c*32 5c*16 01 64 01 01 c4*32 51*64 02 02 04 06 07 \
         01 0a*32",
        "531ab002ebf3bc1b74a84adb9810b2271ccfb0f334f1030ebbcd6271ae24d886 \
         f25f233f40e848cb810bb063c7f81acbd0d0d0181477e48a3870fd5a18ce3601",
    ),
    (
        "roster, adopting",
        "04 05 e4*32 01 67*32 03 0a*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 5b*16 01 00 02 0a*32 \
         5a*16 0b*32 5b*16 01 05 e4*32 00 00 d0*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 5b*16 01 00 \
         00 00",
        "1fefcf22ea5bfdbd93f2ccc24a3cff11d2337542432a772a5e3b4d2c796ef5ae \
         3822d9d304dfe00a22fea6c1c34ba0523ddceae88bb03f1f1c041f1db4037e0c",
    ),
    (
        "accept",
        "05 05 e4*32 00 70*32 01 0c*32",
        "5fe34db7a48e68f87f1f609502965b929c5b131cc1df82766f13e7c41bd7aa99 \
         aaac13e2b00deeeef94f2042f90c5b183295f62f59e80886b6b0ebdb5f2d1d0c",
    ),
    (
        "refuse, promised",
        "06 05 e4*32 00 70*32 03 04 fc 70 11 01 00 e4*32 00",
        "3f4d4ebb3e1cc9269efd1842dadf33dc30ce01b9ca346fba7fc822f7a3e83c9a \
         a3683169f19f7d7b041ad9d5096e0fabb8ebaadb1ff28fcb3a75f0b402a4c602",
    ),
    (
        "refuse, weight",
        "06 05 e4*32 00 70*32 03 04 fc 70 11 01 00 e4*32 01",
        "1d6ee69d4563ebbd7c499b88e41b924aa3e8d3a712156d96c09c94002bb949ec \
         17cb28cc616f1d79a0f6831d425849585951d9a18601ca5b4476e6d4b20cd50d",
    ),
    (
        "refuse, rule",
        "06 05 e4*32 00 70*32 03 04 fc 70 11 01 00 e4*32 02",
        "513f12f33994ab742387336efa75905e1711221a13199c10069ce94e750da229 \
         d38551d55ef5036d7809578393612395366968a8fdd2c809b279674ab11b020b",
    ),
    (
        "refuse, present",
        "06 05 e4*32 00 70*32 03 04 fc 70 11 01 00 e4*32 03 0b*32",
        "6be015404742b7cc1c9e76f2db384f99c72be3b1610f415f02c81e9e147f90cf \
         c5946779c9d23320d635940a260379b54bf279f6daff7112347b9f400b4b8c01",
    ),
    (
        "refuse, absent",
        "06 05 e4*32 00 70*32 03 04 fc 70 11 01 00 e4*32 04 0b*32",
        "8525ef1778adf7fab30c8c9729f7cbc2e64c430234a7e0eed64b58d8ba5a87ad \
         fd43a7f25acddb5146047030b688aa256c5cf5be1bcbe20180451cb1b6d55102",
    ),
    (
        "lost",
        "07 05 e4*32 00 70*32 0b*32",
        "eaa395ea36a961fde5418ad86797f039648c5914e0ac8c2bc0f6dcdb9a53cccb \
         c8cff0e2ca98d23db9e53b74ac2d4566d5394072a995f6dc8112893891799908",
    ),
    (
        "done",
        "08 05 e4*32 00 70*32 72*32 d0*32",
        "d799e8942f3e73e819298f49e8e43bd39818969d301d119a5864316feb02081b \
         c14284028269bbc916d7e82ccdb1dd93d3fb436009a94b96faa1c3ca755b800e",
    ),
    (
        "commit, whole",
        "09 00 05 e4*32 00 00 d0*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 5b*16 01 00 00 05 e4*32 00 \
         01 0a*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 5b*16 01 00*4 01 0a*32 51*64 01 05 e4*32 00 01 \
         0a*32 01 0a*32 5a*16 00 01 0a*32 05 e4*32 00 67*32 5a*16 00 51*64",
        "e3f428a45f5f8284016d301e061e8a775ffa13a0031ed8c0b26e4f5e2c2abb8d \
         b9762feef0ab021a1572425b21c867ea351ade746f1d5783816980ce1d5f150d",
    ),
    (
        "commit, whole, of a repaired ring",
        "09 00 05 e4*32 00 00 d0*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 5b*16 01 00 01 71*32 02 \
         0a*32 5a*16 01 fb 2c 01 0c*32 5c*16 01 64 02 02 04 06 07 05 e4*32 00 02 0a*32 02 0a*32 \
         5a*16 01 fb 2c 01 0b*32 5b*16 01 00 01 0a*32 5a*16 00 01 71*32 02 0a*32 5a*16 01 fb 2c \
         01 0c*32 5c*16 01 64 01 01 c4*32 51*64 02 02 04 06 07 01 0a*32 01 0a*32 51*64 00",
        "9fe507a73b69a61f4d1670f11ba6091eb25610b3f6426314af73b2d8c2d27e6b \
         d2ee3c29cc4bcdef49b3abc697b26a7fc269a2ee1191553068b1d19e61ef0c07",
    ),
    (
        "commit, short",
        "09 01 05 e4*32 00 70*32 72*32 d0*32 01 0a*32 51*64",
        "04297ab0f804845983b195710a7c82a80fcc9f81f410bf0bafc2e2043ebca335 \
         abe7103f370040e8585835ccb324e537dd9768c491430a894ae3394540c15109",
    ),
    (
        "regroup",
        "0a 05 e4*32 00 01 0a*32 01 0a*32 5a*16 05 0b*32 5b*16 00 0c*32 5c*16 01 0d*32 5d*16 02 \
         0e*32 5e*16 03 0f*32 5f*16 04",
        "5a6b46991b8bd959a0c85206d37f0eff90260390ebd6537dede6b2291614347a \
         1656e3417f63a84d863aca6116130ce6e8cbe55a0850e91b61afad3c9c0af706",
    ),
    (
        "join, nothing",
        "0b 05 e4*32 00 67*32 5a*16 00",
        "629f7ebd25ab95afff5aa700c5bee76c9bb9231810c856e2356834470b85b55c \
         f0106f0c4ab38fd2f788ff9b8b4b1015ea706b3c350d287166a68f53b7ddbf0a",
    ),
    (
        "join, voted",
        "0b 05 e4*32 00 67*32 5a*16 01 01 02 05 e4*32 00 00 d0*32 02 0a*32 5a*16 01 fb 2c 01 \
         0b*32 5b*16 01 00 00",
        "32e7347464368cc25d4e8829c708b5c506d3350d3005f44919e5f516d53ebecf \
         77e5346b560db30c09776e56a2880bcedcd34f850959f749231a4f27fa7b5007",
    ),
    (
        "leaving",
        "0c 04 fc 70 11 01 00 e4*32 01",
        "9a75e8e8800a222221bf4929e776ce771020f8cb4a5c73847b6aaa6c9a465901 \
         e8f7467772b097b8e30a5e5354928216a3e227432b7655d8dd68cc53ac6e3c09",
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
];

pub(crate) const ANSWERS: &[(&str, &str)] = &[
    (
        "lineage",
        "00 01 05 e4*32 00 00 d0*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 5b*16 01 00 00 05 e4*32 00 \
         01 0a*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 5b*16 01 00*4 01 0a*32 51*64 01 05 e4*32 00 01 \
         0a*32 01 0a*32 5a*16 00 01 0a*32 05 e4*32 00 67*32 5a*16 00 51*64 04 fc 70 11 01 00 \
         e4*32 01 05 e4*32 00 01 0a*32 01 0a*32 5a*16 00 01 0a*32 05 e4*32 00 67*32 5a*16 00 \
         51*64",
    ),
    ("chain", "01 01 04 e4*32 72*32"),
];
