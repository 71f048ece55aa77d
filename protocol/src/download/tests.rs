//! Donors of every kind, in virtual time.

use super::*;

const HONEST: PeerId = PeerId([1; 32]);
const OTHER: PeerId = PeerId([2; 32]);
const LIAR: PeerId = PeerId([3; 32]);
const SWAPPER: PeerId = PeerId([4; 32]);
const DRIP: PeerId = PeerId([5; 32]);
const ENDLESS: PeerId = PeerId([6; 32]);
const EMPTY: PeerId = PeerId([7; 32]);
const SILENT: PeerId = PeerId([8; 32]);

const PART: u32 = 10;
const CONFIG: Config = Config { part_bytes: PART, rules: Rules::ALL };

/// How long an answer takes, if one comes, and what it is.
type Answer = Option<(u64, Result<Vec<u8>, Failure>)>;

/// A transfer that is being played.
struct Play<F> {
    state: State,
    now: Time,
    answer: F,
    line_full: bool,
    coming: BTreeMap<(Time, u64), Result<Vec<u8>, Failure>>,
    bytes: Vec<u8>,
    asked: Vec<(PeerId, u64)>,
    blamed: Vec<PeerId>,
    end: Option<Output>,
}

impl<F: FnMut(PeerId, u64, u32) -> Answer> Play<F> {
    fn new(donors: &[PeerId], answer: F) -> Self {
        let state = State::new(CONFIG);
        let (coming, bytes, asked, blamed) = Default::default();
        let (now, line_full, end) = (Time::ZERO, false, None);
        let mut play = Self { state, now, answer, line_full, coming, bytes, asked, blamed, end };
        play.handle(Input::Donors(donors.to_vec()), &[]);
        play
    }

    fn handle(&mut self, input: Input, answer: &[u8]) {
        let mut out = Vec::new();
        self.state.handle(self.now, input, &mut out);
        for output in out {
            match output {
                Output::Ask { number, peer, offset, length, .. } => {
                    self.asked.push((peer, offset));
                    if let Some((ms, answer)) = (self.answer)(peer, offset, length) {
                        self.coming.insert((Time(self.now.0 + ms), number), answer);
                    }
                }
                Output::Keep { offset, .. } => {
                    let place = usize::try_from(offset).unwrap();
                    self.bytes.resize(self.bytes.len().max(place + answer.len()), 0);
                    self.bytes[place..place + answer.len()].copy_from_slice(answer);
                }
                Output::Hash { length } => {
                    self.bytes.truncate(usize::try_from(length).unwrap());
                    self.handle(Input::Hashed(hash(&self.bytes)), &[]);
                }
                Output::Fault(peer, _) => self.blamed.push(peer),
                Output::Done | Output::Nobody => self.end = Some(output),
            }
        }
    }

    /// The next answer, or the next tick, whichever is first.
    fn step(&mut self) {
        let look = self.state.deadline().unwrap();
        match self.coming.first_key_value() {
            Some(((at, _), _)) if *at <= look => {
                let ((at, number), answer) = self.coming.pop_first().unwrap();
                self.now = at;
                let bytes = answer.clone().unwrap_or_default();
                let named = Bytes { length: bytes.len() as u64, digest: hash(&bytes) };
                self.handle(Input::Answer(number, answer.map(|_| named)), &bytes);
            }
            _ => {
                self.now = look;
                self.handle(Input::Tick { line_full: self.line_full }, &[]);
            }
        }
    }

    /// Plays to the end; returns whether everything came.
    fn fetch(&mut self, want: Want) -> bool {
        self.handle(Input::Fetch(want), &[]);
        while self.end.is_none() {
            assert!(self.now < Time(3_600_000), "it goes on for ever");
            self.step();
        }
        assert_eq!(self.state.deadline(), None);
        self.end.take() == Some(Output::Done)
    }

    fn asked_of(&self, donor: PeerId) -> usize {
        self.asked.iter().filter(|(peer, _)| *peer == donor).count()
    }
}

fn hash(bytes: &[u8]) -> Digest {
    Digest(*blake3::hash(bytes).as_bytes())
}

/// Parts that each contain their own number, and a shorter last one.
fn thing() -> Vec<u8> {
    (0..12).flat_map(|part| vec![part + 1; PART as usize]).chain([99; 5]).collect()
}

fn pieces() -> Want {
    let piece = |(number, bytes): (usize, &[u8])| Piece {
        offset: number as u64 * u64::from(PART),
        length: u32::try_from(bytes.len()).unwrap(),
        digest: hash(bytes),
    };
    Want::Pieces(thing().chunks(PART as usize).enumerate().map(piece).collect(), BTreeSet::new())
}

fn whole() -> Want {
    Want::Whole(hash(&thing()), Length::Exactly(thing().len() as u64))
}

fn file(bytes: &[u8]) -> Want {
    Want::Whole(hash(bytes), Length::AtMost(200))
}

fn part_of(bytes: &[u8], offset: u64, length: u32) -> Vec<u8> {
    let rest = &bytes[usize::try_from(offset).unwrap().min(bytes.len())..];
    rest[..rest.len().min(length as usize)].to_vec()
}

/// The answer of a donor of this kind.
fn answer(peer: PeerId, offset: u64, length: u32) -> Answer {
    let part = part_of(&thing(), offset, length);
    let answer = match peer {
        DRIP => Ok(part[..1].to_vec()),
        LIAR => Ok(vec![7; part.len()]),
        SWAPPER => Ok(part_of(&thing(), 0, length)[..part.len()].to_vec()),
        ENDLESS => Err(Failure::TooLong),
        EMPTY => Err(Failure::Refused),
        SILENT => return None,
        _ => Ok(part),
    };
    Some((50, answer))
}

#[test]
fn parts_come_from_all_donors_and_none_is_asked_twice_without_need() {
    for want in [pieces(), whole()] {
        let mut play = Play::new(&[HONEST, OTHER], answer);
        assert!(play.fetch(want) && play.blamed.is_empty());
        assert_eq!((play.bytes == thing(), play.asked.len()), (true, 13));
        assert!(play.asked_of(HONEST) > 2 && play.asked_of(OTHER) > 2, "{:?}", play.asked);
        assert_eq!(play.state.active().count(), 2);
    }
}

#[test]
fn a_donor_that_lies_is_named_once_left_out_and_the_rest_is_kept() {
    for liar in [LIAR, SWAPPER, DRIP, ENDLESS] {
        let mut play = Play::new(&[liar, HONEST], answer);
        assert!(play.fetch(pieces()) && play.bytes == thing(), "{liar:?}");
        assert!(!play.blamed.is_empty() && play.blamed.iter().all(|peer| *peer == liar));
        assert!(play.asked_of(liar) <= 4 + 1, "{liar:?} {:?}", play.asked);
        assert_eq!(play.state.active().collect::<Vec<_>>(), [HONEST]);
    }
}

/// Without the check a lie is stored: otherwise the tests above would show nothing.
#[test]
fn without_the_check_a_lie_is_kept() {
    for want in [pieces(), whole()] {
        let mut play = Play::new(&[LIAR], answer);
        play.state.config.rules = Rules::without(Some(Rule::Checked));
        assert!(play.fetch(want) && play.bytes != thing());
    }
}

#[test]
fn a_silent_donor_holds_up_nobody_and_is_left_out() {
    let mut play = Play::new(&[SILENT, HONEST], answer);
    assert!(play.fetch(pieces()) && play.blamed.is_empty());
    assert!(play.asked_of(SILENT) <= 2 && play.now < Time(15_000), "{:?}", play.now);
    let mut play = Play::new(&[SILENT], answer);
    assert!(!play.fetch(pieces()));
    assert_eq!(play.asked_of(SILENT), 2);
}

#[test]
fn a_digest_that_nobody_holds_ends_the_transfer() {
    for want in [pieces(), whole(), file(&thing())] {
        let mut play = Play::new(&[EMPTY], answer);
        assert!(!play.fetch(want.clone()) && play.blamed.is_empty());
        assert_eq!(play.asked_of(EMPTY), 1);
        assert!(!Play::new(&[], answer).fetch(want));
    }
}

#[test]
fn of_what_can_be_checked_only_whole_the_good_one_shows_who_lied() {
    for (liar, donors) in [LIAR, SWAPPER].into_iter().flat_map(|liar| {
        [vec![liar, HONEST], vec![HONEST, liar, OTHER]].map(|donors| (liar, donors))
    }) {
        let mut play = Play::new(&donors, answer);
        assert!(play.fetch(whole()) && play.bytes == thing(), "{liar:?}");
        assert_eq!(play.blamed, [liar]);
        // The liar is not asked for the next file.
        let before = play.asked_of(liar);
        assert!(play.fetch(pieces()));
        assert_eq!(play.asked_of(liar), before);
    }
    for (donors, blamed) in [(vec![LIAR], vec![LIAR]), (vec![SILENT, EMPTY], vec![])] {
        let mut play = Play::new(&donors, answer);
        assert!(!play.fetch(whole()));
        assert_eq!(play.blamed, blamed);
    }
}

#[test]
fn nothing_is_fetched_that_is_here() {
    let Want::Pieces(pieces, _) = pieces() else { unreachable!() };
    let held: BTreeSet<usize> = (0..pieces.len()).filter(|piece| piece % 3 > 0).collect();
    let mut play = Play::new(&[HONEST], answer);
    assert!(play.fetch(Want::Pieces(pieces.clone(), held)));
    assert_eq!(play.asked.len(), 5);
    let all = (0..pieces.len()).collect();
    assert!(play.fetch(Want::Pieces(pieces, all)));
    assert_eq!(play.asked.len(), 5);
}

/// On a slow link every donor is slow. A part that is arriving, however slowly, is not requested
/// from a second donor, which would take half of the link; a part of which nothing arrives is.
#[test]
fn a_slow_line_carries_nothing_twice() {
    for (line_full, donors) in [(true, vec![HONEST]), (false, vec![HONEST, OTHER])] {
        let mut play = Play::new(&[HONEST, OTHER], |_, _, _| None);
        play.line_full = line_full;
        play.handle(Input::Fetch(Want::Whole(Digest::ZERO, Length::Exactly(9))), &[]);
        while play.now < Time(10_000) {
            play.step();
        }
        let asked: Vec<PeerId> = play.asked.iter().map(|(peer, _)| *peer).collect();
        assert_eq!(asked, donors);
    }
}

/// The only donor known at first holds its request. A peer that joins hears of more donors later.
#[test]
fn donors_that_are_heard_later_are_asked_too() {
    let mut play = Play::new(&[SILENT], answer);
    play.handle(Input::Fetch(pieces()), &[]);
    play.handle(Input::Donors(vec![SILENT, EMPTY, HONEST, OTHER]), &[]);
    while play.end.is_none() {
        play.step();
    }
    assert_eq!(play.end, Some(Output::Done));
    assert!(play.asked_of(HONEST) > 2 && play.asked_of(OTHER) > 2);
    assert!(play.asked_of(EMPTY) <= 4, "{:?}", play.asked);
}

/// One donor refuses its part when the others have delivered theirs. Unknown peers have joined
/// meanwhile, and each would refuse the part as well, a second later.
#[test]
fn who_has_delivered_is_asked_before_who_has_come_late() {
    let late: Vec<PeerId> = (10..18).map(|name| PeerId([name; 32])).collect();
    let mut play = Play::new(&[OTHER, HONEST], |peer, offset, length| {
        let has = peer == HONEST;
        let part = part_of(&thing(), offset, length);
        Some(if has { (50, Ok(part)) } else { (1_000, Err(Failure::Refused)) })
    });
    play.handle(Input::Fetch(pieces()), &[]);
    while play.bytes.len() < thing().len() {
        play.step();
    }
    play.handle(Input::Donors(late.clone()), &[]);
    while play.end.is_none() {
        play.step();
    }
    assert_eq!(play.end, Some(Output::Done));
    assert!(late.iter().all(|donor| play.asked_of(*donor) == 0), "{:?}", play.asked);
}

/// Nine donors have nothing, and each says so after a second; the tenth has everything. No donor is
/// asked twice before each was asked once.
#[test]
fn who_had_nothing_is_asked_after_who_was_not_asked_yet() {
    let empty = (10..19).map(|name| PeerId([name; 32]));
    let donors: Vec<PeerId> = empty.chain([HONEST]).collect();
    let mut play = Play::new(&donors, |peer, offset, length| match peer {
        HONEST => answer(peer, offset, length),
        _ => Some((1_000, Err(Failure::Refused))),
    });
    assert!(play.fetch(whole()) && play.now < Time(12_000), "{:?}", play.now);
    let first: Vec<PeerId> = play.asked.iter().take(10).map(|(peer, _)| *peer).collect();
    assert_eq!(first, donors);
}

/// They take turns, so that a request is always open.
#[test]
fn donors_that_hold_a_request_and_refuse_it_hold_up_nobody_for_ever() {
    let held = |_, _, _| Some((25_000, Err(Failure::Refused)));
    let mut play = Play::new(&[LIAR, OTHER, EMPTY], held);
    assert!(!play.fetch(pieces()));
    assert!([LIAR, OTHER, EMPTY].iter().all(|donor| play.asked_of(*donor) <= 2));
}

/// A donor that is fetching the same file has it a little later.
#[test]
fn a_donor_that_had_nothing_is_asked_again_while_others_are_busy() {
    let mut asked = 0;
    let mut play = Play::new(&[OTHER, HONEST], |peer, offset, length| {
        asked += u32::from(peer == OTHER);
        let (ms, part) = (if peer == OTHER { 1 } else { 1_000 }, part_of(&thing(), offset, length));
        let has = peer == HONEST || asked > 1;
        Some((ms, if has { Ok(part) } else { Err(Failure::Refused) }))
    });
    assert!(play.fetch(pieces()));
    assert!(play.state.active().any(|donor| donor == OTHER));
}

#[test]
fn our_own_side_without_room_is_nobody_s_fault() {
    let mut busy = 9;
    let mut play = Play::new(&[HONEST], |peer, offset, length| {
        busy = u32::checked_sub(busy, 1).unwrap_or_default();
        if busy > 0 { Some((0, Err(Failure::Busy))) } else { answer(peer, offset, length) }
    });
    assert!(play.fetch(whole()) && play.now > Time(8 * 200));
}

/// On a slow link answers break off now and then. The bytes that came before are not requested
/// again, unless the rule is switched off.
#[test]
fn a_file_of_unknown_length_comes_in_parts_each_of_them_once() {
    for (length, without) in [0, 3, 10, 23, 120]
        .into_iter()
        .flat_map(|length| [None, Some(Rule::Resumed)].map(|without| (length, without)))
    {
        let bytes = vec![7; length];
        let (mut questions, mut sent) = (0, Vec::new());
        let mut play = Play::new(&[HONEST, EMPTY], |peer, offset, length| {
            questions += 1;
            let is_sent = peer == HONEST && questions % 3 > 0;
            sent.extend(is_sent.then_some(offset));
            let part =
                if is_sent { Ok(part_of(&bytes, offset, length)) } else { Err(Failure::Refused) };
            Some((50, part))
        });
        play.state.config.rules = Rules::without(without);
        let there = play.fetch(file(&bytes));
        assert!(play.blamed.is_empty());
        if without.is_none() || length < 20 {
            assert!(there && play.bytes == bytes, "{length}");
            assert_eq!(sent, (0..=length as u64).step_by(10).collect::<Vec<_>>());
        } else {
            assert!(!there, "{length}");
        }
    }
}

/// The donor begins the file and breaks off, or lies, or sends more than any file has.
#[test]
fn who_lies_keeps_no_file_away() {
    for count in [1, 2, 5, 1_000] {
        let bytes = vec![7; 23];
        let mut left = count;
        let mut play = Play::new(&[LIAR, HONEST], |peer, offset, length| {
            if peer == HONEST {
                return Some((50, Ok(part_of(&bytes, offset, length))));
            }
            left -= i32::from(left > 0);
            Some((50, if left > 0 { Ok(vec![8; 10]) } else { Err(Failure::Refused) }))
        });
        assert!(play.fetch(file(&bytes)) && play.bytes == bytes, "{count}");
        assert_eq!(play.blamed.len(), usize::from(count == 1_000));
        assert!(play.asked_of(LIAR) <= 21, "{:?}", play.asked);
    }
    let mut play = Play::new(&[LIAR], |_, _, _| Some((50, Ok(vec![8; 3]))));
    assert!(!play.fetch(file(&[7; 3])));
    assert_eq!(play.blamed, [LIAR]);
}
