//! One example of every message, request and answer, in every form that it has.

use intellect_protocol::base::blocks::Blocks;
use intellect_protocol::base::id::{Digest, LogId, PeerId, RunId};
use intellect_protocol::base::sign::Signature;
use intellect_protocol::message::seal::Seal;
use intellect_protocol::message::{
    Absence, Accept, Admissions, Answer, Ask, Attestation, Body, Certificate, ChainLink, Clause,
    Commit, Done, Finished, Ground, Head, Heard, Heartbeat, Invite, Join, Keep, Kept, Leaving,
    Link, Loss, Member, Message, Notice, Opened, Opening, Phase, Picture, Prepared, Query, Ranked,
    Ready, Receipt, Refusal, Refuse, Regroup, Report, Request, Roster, Row, Series, Stalled,
    Status, Terms, Ticket, Voted, Voter,
};

const TOKENS: u64 = 70_000;

fn peer(n: u8) -> PeerId {
    PeerId([n; 32])
}

fn digest(n: u8) -> Digest {
    Digest([n; 32])
}

fn voter(n: u8) -> Voter {
    Voter { peer: peer(n), log: LogId([n | 0x50; 16]) }
}

fn member(n: u8, weight: u64) -> Member {
    Member { peer: peer(n), log: LogId([n | 0x50; 16]), incarnation: 1, weight }
}

fn head() -> Head {
    Head { epoch: 4, tokens: TOKENS, state: digest(0xe4) }
}

fn series() -> Series {
    Series::after(&head())
}

fn receipt() -> Receipt {
    let members = vec![member(0xa, 300), member(0xb, 0)];
    Receipt { series: series(), trust: None, update: digest(0xd0), members, parts: Vec::new() }
}

fn seal() -> Seal {
    Seal { digest: digest(0xc4), signature: Signature([0x51; 64]) }
}

fn keep() -> Keep {
    let (blocks, holders) = (Blocks::of([2..4, 6..7]), vec![peer(0xa)]);
    let chunks = vec![Kept { chunk: 1, seal: seal(), blocks, holders }];
    Keep { roster: digest(0x71), members: vec![member(0xa, 300), member(0xc, 100)], chunks }
}

fn voted() -> Voted {
    let accepts = vec![(peer(0xa), Signature([0x51; 64]))];
    Voted { depth: 1, roster: free(), update: digest(0xd0), accepts }
}

fn free() -> Roster {
    let Receipt { series, members, .. } = receipt();
    Roster {
        series,
        attempt: 1,
        proposer: peer(0xa),
        members,
        heard: Vec::new(),
        adopt: None,
        trust: None,
        keep: Vec::new(),
    }
}

fn repairing() -> Roster {
    Roster { attempt: 2, heard: vec![heard(0xa, None)], keep: vec![keep()], ..free() }
}

fn adopting() -> Roster {
    let series = series().regrouped(digest(0x67));
    Roster {
        series,
        attempt: 3,
        heard: vec![heard(0xa, None), heard(0xb, Some(ranked()))],
        adopt: Some(receipt()),
        ..free()
    }
}

fn join(done: Option<Ranked>) -> Join {
    Join { series: series(), regroup: digest(0x67), log: LogId([0x5a; 16]), done }
}

fn regroup() -> Regroup {
    let because =
        [Absence::Silent, Absence::Left, Absence::OtherLog, Absence::Elsewhere, Absence::Mute];
    Regroup {
        series: series(),
        number: 1,
        proposer: peer(0xa),
        members: vec![voter(0xa)],
        absent: (0xb..).map(voter).zip(because).collect(),
        trust: None,
    }
}

fn opening() -> Opening {
    let regroup = Regroup { absent: Vec::new(), ..regroup() };
    Opening { regroup, joins: vec![(peer(0xa), join(None), Signature([0x51; 64]))], ground: None }
}

fn link() -> Link {
    let certificate =
        Certificate { roster: free(), dones: vec![(peer(0xa), Signature([0x51; 64]))] };
    Link { receipt: receipt(), certificate, openings: vec![opening()] }
}

fn heartbeat(phase: Phase, joined: Option<Digest>) -> Message {
    Message::Heartbeat(Heartbeat {
        count: 251,
        head: head(),
        series: series(),
        joined,
        closed: false,
        log: LogId([0x5a; 16]),
        incarnation: 1,
        phase,
        attempt: 2,
        ready: 300,
        direct: true,
        unlinked: Vec::new(),
        round_trips: vec![(peer(0xb), 20)],
        send_rate: 1 << 33,
        serves: 4,
        notice: 2,
        attested: 1,
        ticket: None,
    })
}

fn attestation() -> Notice {
    let Head { epoch, state, .. } = head();
    let body = Body::Attestation(Attestation { epoch, state, r: digest(0x72) });
    let (run, before) = (RunId([0x52; 32]), digest(0xb0));
    Notice { run, number: 2, before, body, signature: Signature([0x51; 64]) }
}

fn invite() -> Invite {
    let terms = Terms {
        uses: 5,
        until_epoch: 300,
        expires: 1 << 32,
        label: "bob".to_owned(),
        key: peer(0x1e),
    };
    Invite { run: RunId([0x52; 32]), terms, signature: Signature([0x51; 64]) }
}

fn ticket() -> Ticket {
    let signature = Signature([0x54; 64]);
    Ticket::Invited { invite: Box::new(invite()), peer: peer(0xa), signature }
}

fn membership() -> Notice {
    let body = Body::Membership(vec![
        Clause::RevokePeer(peer(0xb)),
        Clause::RevokeInvite { key: peer(0x1e), admitted: true },
        Clause::Admit(peer(0xc)),
    ]);
    let (run, signature) = (RunId([0x52; 32]), Signature([0x51; 64]));
    Notice { run, number: 1, before: Digest::ZERO, body, signature }
}

fn trust() -> Option<Box<Admissions>> {
    let named = Ticket::Named {
        run: RunId([0x52; 32]),
        peer: peer(0xb),
        until_epoch: 9,
        signature: Signature([0x51; 64]),
    };
    Some(Box::new(Admissions {
        notices: vec![membership(), attestation()],
        tickets: vec![ticket(), named],
    }))
}

/// A short one, since every damaged form of it is read.
fn named() -> Option<Box<Admissions>> {
    let all = trust().unwrap();
    let tickets = all.tickets.into_iter().skip(1).collect();
    Some(Box::new(Admissions { notices: Vec::new(), tickets }))
}

/// An epoch of a run of invited peers, which admits some.
fn admitting() -> Link {
    let roster = Roster { trust: named(), ..free() };
    let receipt = roster.receipt(digest(0xd0));
    let certificate = Certificate { roster, ..link().certificate };
    Link { receipt, certificate, openings: Vec::new() }
}

fn ranked() -> Ranked {
    Ranked { depth: 0, attempt: 2, r: digest(0x72) }
}

fn heard(name: u8, done: Option<Ranked>) -> Heard {
    Heard { voter: voter(name), done, holds_forced: false, signature: Signature([0x51; 64]) }
}

fn status(done: Option<Ranked>, holds_forced: bool) -> Message {
    let (series, log) = (series(), LogId([0x5a; 16]));
    Message::Status(Status { series, log, attempt: 1 << 32, done, holds_forced })
}

fn report(ready: Option<(u64, u64)>, chunks: Vec<Finished>) -> Message {
    let present = vec![peer(0xa), peer(0xb)];
    Message::Report(Report { series: series(), attempt: 2, chunks, ready, present })
}

fn finished() -> Finished {
    Finished { roster: digest(0x71), chunk: 1, seal: seal() }
}

fn mended() -> Link {
    let receipt = repairing().receipt(digest(0xd0));
    let certificate = Certificate { roster: repairing(), ..link().certificate };
    Link { receipt, certificate, openings: Vec::new() }
}

fn refuse(reason: Refusal) -> Message {
    let (series, what, head) = (series(), digest(0x70), head());
    Message::Refuse(Refuse { series, what, promised: 3, head, reason })
}

/// Every message, in every form that it has.
pub(crate) fn messages() -> Vec<(&'static str, Message)> {
    let series = series();
    let (roster, r, update) = (digest(0x70), digest(0x72), digest(0xd0));
    let dones = vec![(peer(0xa), Signature([0x51; 64]))];
    vec![
        ("heartbeat", heartbeat(Phase::Train, None)),
        ("heartbeat, joined", heartbeat(Phase::Regrouping, Some(digest(0x67)))),
        ("heartbeat, with a ticket", {
            let Message::Heartbeat(beat) = heartbeat(Phase::Train, None) else { unreachable!() };
            Message::Heartbeat(Heartbeat { ticket: Some(Box::new(ticket())), ..beat })
        }),
        ("heartbeat, closed and unlinked", {
            let Message::Heartbeat(beat) = heartbeat(Phase::Train, None) else { unreachable!() };
            Message::Heartbeat(Heartbeat { closed: true, unlinked: vec![0xa5, 0x03], ..beat })
        }),
        ("ready", ready()),
        ("query", Message::Query(Query { series, attempt: 2 })),
        ("status, nothing", status(None, false)),
        ("status, voted", status(Some(ranked()), true)),
        ("report, nothing", report(None, Vec::new())),
        ("report, finished chunks", report(None, vec![finished()])),
        ("report, ready", report(Some((1, 300)), Vec::new())),
        ("roster, free", Message::Roster(free())),
        ("roster, repairing", Message::Roster(repairing())),
        ("roster, adopting", Message::Roster(adopting())),
        ("roster, admitting", Message::Roster(Roster { trust: trust(), ..free() })),
        ("accept", Message::Accept(Accept { series, roster })),
        ("refuse, promised", refuse(Refusal::Promised)),
        ("refuse, weight", refuse(Refusal::Weight)),
        ("refuse, rule", refuse(Refusal::Rule)),
        ("refuse, present", refuse(Refusal::Present(peer(0xb)))),
        ("refuse, absent", refuse(Refusal::Absent(peer(0xb)))),
        ("refuse, lacks", refuse(Refusal::Lacks(peer(0xb)))),
        ("refuse, places", refuse(Refusal::Places)),
        ("refuse, early", refuse(Refusal::Early(300))),
        ("refuse, notice", refuse(Refusal::Notice(7, digest(0x77)))),
        ("refuse, expired", refuse(Refusal::Expired(peer(0xb)))),
        ("refuse, unproven", refuse(Refusal::Unproven)),
        ("stalled", Message::Stalled(Stalled { series, roster, lost: Some(peer(0xb)), hops: 5 })),
        ("quiet", Message::Stalled(Stalled { series, roster, lost: None, hops: 0 })),
        ("done", Message::Done(Done { series, roster, r, update })),
        ("commit, whole", Message::Commit(Commit::Whole(Box::new(link())))),
        ("commit, whole, of a repaired ring", Message::Commit(Commit::Whole(Box::new(mended())))),
        ("commit, whole, admitting", Message::Commit(Commit::Whole(Box::new(admitting())))),
        ("commit, short", Message::Commit(Commit::Short { series, roster, r, update, dones })),
        ("regroup", Message::Regroup(regroup())),
        (
            "regroup, with a ticket",
            Message::Regroup(Regroup {
                absent: vec![(voter(0xb), Absence::Revoked)],
                trust: named(),
                ..regroup()
            }),
        ),
        (
            "regroup of a regroup, with a ticket",
            Message::Regroup(Regroup {
                series: series.regrouped(digest(0x67)),
                trust: named(),
                ..regroup()
            }),
        ),
        ("join, nothing", Message::Join(join(None))),
        ("join, voted", Message::Join(join(Some(ranked())))),
        ("leaving", Message::Leaving(Leaving { head: head(), incarnation: 1 })),
        ("attestation", Message::Notice(attestation())),
        ("membership update", Message::Notice(membership())),
    ]
    .into_iter()
    .chain(proofs())
    .collect()
}

fn ready() -> Message {
    let (norm, loss) = (1.5, Loss(2.5));
    Message::Ready(Ready { series: series(), incarnation: 1, weight: 300, norm, loss })
}

/// The messages that prove votes and rings.
fn proofs() -> [(&'static str, Message); 3] {
    let (series, roster, update) = (series(), digest(0x70), digest(0xd0));
    let accepts = voted().accepts;
    [
        ("ground", Message::Ground(Ground { series, voted: voted() })),
        ("opened", Message::Opened(Opened { series, roster: free(), accepts })),
        ("prepared", Message::Prepared(Prepared { series, roster, update })),
    ]
}

pub(crate) fn requests() -> Vec<(&'static str, Request)> {
    let (update, state, offset) = (digest(0xd0), digest(0xe4), 1 << 20);
    vec![
        ("lineage", Request::Ask(Ask::Lineage { from_epoch: 5 })),
        ("chain", Request::Ask(Ask::Chain { from_epoch: 5 })),
        ("update", Request::Update { update, offset }),
        ("table", Request::Table { state, offset }),
        ("piece", Request::Piece { state, index: 7 }),
        ("chunk", Request::Chunk { roster: digest(0x71), chunk: 1, offset }),
        ("file", Request::File { file: digest(0x72), offset }),
        ("tree", Request::Tree { file: digest(0x73), offset }),
        ("data", Request::Data { file: digest(0x73), index: 300 }),
        ("picture", Request::Picture),
    ]
}

fn picture() -> Picture {
    let (peer, phase, loss, send_rate) = (peer(0xa), Phase::Reduce, Loss(2.5), 1 << 20);
    let row = Row { peer, epoch: 4, phase, ready: 300, loss, rtt_ms: 40, send_rate };
    Picture { head: head(), rows: vec![row] }
}

pub(crate) fn answers() -> Vec<(&'static str, Answer)> {
    let (links, openings) = (vec![link()], vec![opening()]);
    let chain = ChainLink { epoch: 4, state: digest(0xe4), r: digest(0x72) };
    vec![
        ("lineage", Answer::Lineage { links, head: head(), openings }),
        ("chain", Answer::Chain(vec![chain])),
        ("picture", Answer::Picture(picture())),
    ]
}
