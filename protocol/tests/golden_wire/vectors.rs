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
        "00 fb fb 00 04 fc 70 11 01 00 e4*32 05 e4*32 00 00 5a*16 01 01 02 fb 2c 01 01 01 \
         0b*32 14 fd 00*4 02 00 00 00 04",
        "929ab4091b19f96bcfc661db8cd1446c672738b44f747c0581873744c6d20431 \
         c7f3e9fc377880f300ec4df6029757dacf6abd235e3955a45946a38f4a07d200",
    ),
    (
        "heartbeat, joined",
        "00 fb fb 00 04 fc 70 11 01 00 e4*32 05 e4*32 00 01 67*32 5a*16 01 07 02 fb 2c 01 01 \
         01 0b*32 14 fd 00*4 02 00 00 00 04",
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
        "03 05 e4*32 00 5a*16 02 00 00 00 02 0a*32 0b*32",
        "df7f4230b2e72b82a2548cfd16b9826da07c5fe820f80e8410615f2d44d1cfd4 \
         d71e48ac50aa517c02470a11068e60217c75cb472275541ad9f10f0944482c09",
    ),
    (
        "status, voted and ready",
        "03 05 e4*32 00 5a*16 02 01 01 02 05 e4*32 00 00 d0*32 02 0a*32 5a*16 01 fb 2c 01 \
         0b*32 5b*16 01 00 00 01 01 fb 2c 01 02 0a*32 0b*32",
        "7da9b94b7a213fa09d9d7c80ac19925d51b94400bd957dc4596a1938860322bf \
         f3d135b731005def20e14e3e7031001a0cc1278c414728ee0b474790e4e4c200",
    ),
    (
        "roster, free",
        "04 05 e4*32 00 01 0a*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 5b*16 01 00 00 00",
        "bd39983e7abc1f64035c865a3eac4e755c8c3850d9129b39f2d8c2f7d7041f5f \
         66d99eb4436fc4d0dccbec6d3713ebaf8c2a0e6eb932752346e389370464d40d",
    ),
    (
        "roster, adopting",
        "04 05 e4*32 01 67*32 03 0a*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 5b*16 01 00 02 0a*32 \
         5a*16 0b*32 5b*16 01 05 e4*32 00 00 d0*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 5b*16 01 \
         00",
        "9ae5a76f16f3d2b937318247cb4db69db5f38ea7b535abff1e02c438ad0d92c6 \
         b9ef5ab2919f9ae46b9908b399cb3099126a55ff3b378968353fbe1d0713c308",
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
        "09 00 05 e4*32 00 00 d0*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 5b*16 01 00 05 e4*32 00 \
         01 0a*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 5b*16 01 00 00 00 01 0a*32 51*64 01 05 \
         e4*32 00 01 0a*32 01 0a*32 5a*16 00 01 0a*32 05 e4*32 00 67*32 5a*16 00 51*64",
        "1e6d5ee1123af0a4301f50f7522250c17ddace8be6fe7bb0d78b011fdecd5815 \
         c9a8142efbe9512fd31e5810f66273d67c7db4e898c0934aa0bfa9d80188520c",
    ),
    (
        "commit, short",
        "09 01 05 e4*32 00 70*32 72*32 d0*32 01 0a*32 51*64",
        "04297ab0f804845983b195710a7c82a80fcc9f81f410bf0bafc2e2043ebca335 \
         abe7103f370040e8585835ccb324e537dd9768c491430a894ae3394540c15109",
    ),
    (
        "regroup",
        "0a 05 e4*32 00 01 0a*32 01 0a*32 5a*16 05 0b*32 5b*16 00 0c*32 5c*16 01 0d*32 5d*16 \
         02 0e*32 5e*16 03 0f*32 5f*16 04",
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
         0b*32 5b*16 01 00",
        "5811bdab4b67646eea774975ba42b23e243f87619be8c1045acb91057fe789a1 \
         bf2ff74b884e3d3256f5c9a2ac8a3d4bde7f593a98463ec5bb98da301d509d07",
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
];

pub(crate) const ANSWERS: &[(&str, &str)] = &[
    (
        "lineage",
        "00 01 05 e4*32 00 00 d0*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 5b*16 01 00 05 e4*32 00 \
         01 0a*32 02 0a*32 5a*16 01 fb 2c 01 0b*32 5b*16 01 00 00 00 01 0a*32 51*64 01 05 \
         e4*32 00 01 0a*32 01 0a*32 5a*16 00 01 0a*32 05 e4*32 00 67*32 5a*16 00 51*64 04 fc \
         70 11 01 00 e4*32 01 05 e4*32 00 01 0a*32 01 0a*32 5a*16 00 01 0a*32 05 e4*32 00 \
         67*32 5a*16 00 51*64",
    ),
    ("chain", "01 01 04 e4*32 72*32"),
];
