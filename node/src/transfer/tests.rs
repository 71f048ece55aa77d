//! Donors of every kind, without a network.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use intellect_bootstrap::frame::FrameError;

use super::*;

const DRIP: PeerId = PeerId([1; 32]);
const SILENT: PeerId = PeerId([2; 32]);
const LIAR: PeerId = PeerId([3; 32]);
const HONEST: PeerId = PeerId([4; 32]);
const OTHER: PeerId = PeerId([5; 32]);
const SWAPPER: PeerId = PeerId([6; 32]);
const ENDLESS: PeerId = PeerId([7; 32]);
const EMPTY: PeerId = PeerId([8; 32]);

/// Short, so that a silent donor costs a test nothing.
const BRIEF: Patience = Patience {
    quick: Duration::from_millis(10),
    slow: Duration::from_millis(100),
    end: Duration::from_millis(400),
};

/// So long that nothing is late on the slowest machine, and whoever was put aside stays there.
const CALM: Patience = {
    let minutes = Duration::from_secs(600);
    Patience { quick: minutes, slow: minutes, end: minutes }
};

/// Parts that each say which they are.
const COUNT: usize = 12;

fn thing() -> Vec<u8> {
    let part = |index: u8| vec![index + 1; PART_BYTES];
    (0..COUNT as u8).flat_map(part).chain([99; 5]).collect()
}

/// How often each donor was asked for each offset.
type Asked = Arc<Mutex<BTreeMap<(PeerId, u64), u32>>>;

/// What a donor answers to a request for a part of the thing.
async fn answer(asked: Asked, peer: PeerId, request: Vec<u8>) -> Result<Vec<u8>, FetchError> {
    let Some(Request::Update { offset, .. }) = wire::open_request(&request) else {
        return Err(FetchError::Refused);
    };
    *asked.lock().unwrap().entry((peer, offset)).or_default() += 1;
    tokio::time::sleep(Duration::from_micros(200)).await;
    let part = part_of(&thing(), offset).ok_or(FetchError::Refused)?;
    match peer {
        DRIP => Ok(part[..1].to_vec()),
        LIAR => Ok(vec![7; part.len()]),
        SWAPPER => part_of(&thing(), 0)
            .map(|first| first[..part.len()].to_vec())
            .ok_or(FetchError::Refused),
        ENDLESS => Err(FetchError::Frame(FrameError::TooLong { declared: u32::MAX, limit: 1 })),
        EMPTY => Err(FetchError::Refused),
        SILENT => std::future::pending().await,
        _ => Ok(part),
    }
}

/// Donors by a function, over a line that is full or not.
struct Wire<F> {
    answer: F,
    full: bool,
}

impl<F> Wire<F> {
    fn new(answer: F) -> Self {
        Self { answer, full: false }
    }
}

impl<F, Fetched> Line for Wire<F>
where
    F: Fn(PeerId, Vec<u8>) -> Fetched,
    Fetched: Future<Output = Result<Vec<u8>, FetchError>> + Send,
{
    fn fetch(
        &self,
        peer: PeerId,
        request: Vec<u8>,
    ) -> impl Future<Output = Result<Vec<u8>, FetchError>> + Send {
        (self.answer)(peer, request)
    }

    fn is_full(&self) -> bool {
        self.full
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

/// Fetches the thing, part by part: whether all came, who was blamed, and who was asked how often.
fn by_parts(donors: &[PeerId]) -> (bool, Vec<PeerId>, BTreeMap<PeerId, u32>) {
    let asked = Asked::default();
    let (update, thing) = (Digest([0; 32]), thing());
    let part = |index: usize| {
        let offset = index * PART_BYTES;
        let request = wire::request(&Request::Update { update, offset: offset as u64 });
        Part { index, request, length: PART_BYTES.min(thing.len() - offset) }
    };
    let line = Wire::new(|peer, request| answer(Arc::clone(&asked), peer, request));
    let mut crowd = Crowd::new(&line, donors, BRIEF);
    crowd.begin((0..=COUNT).map(part));
    let mut blamed = Vec::new();
    block_on(async {
        while let Some(event) = crowd.next().await {
            match event {
                Event::Part { peer, index, bytes } => {
                    if bytes == thing[index * PART_BYTES..][..bytes.len()] {
                        crowd.accept(index);
                    } else {
                        blamed.push(peer);
                        crowd.refuse(peer, index);
                    }
                }
                Event::Fault { peer, .. } => blamed.push(peer),
                Event::Nothing => {}
            }
        }
    });
    let done = crowd.is_done();
    drop(crowd);
    let mut count = BTreeMap::new();
    for ((peer, _), times) in asked.lock().unwrap().iter() {
        *count.entry(*peer).or_default() += times;
    }
    (done, blamed, count)
}

/// Fetches the thing as an update is: what came, and who was blamed.
fn whole(donors: &[PeerId]) -> (Option<Vec<u8>>, Vec<PeerId>) {
    let (update, thing, asked) = (Digest([0; 32]), thing(), Asked::default());
    let line = Wire::new(|peer, request| answer(Arc::clone(&asked), peer, request));
    let whole = Whole {
        length: thing.len(),
        part: |offset| Request::Update { update, offset },
        good: |bytes: &[u8]| bytes == thing,
    };
    let mut blamed = Vec::new();
    let mut tell = |notice| {
        if let Notice::Fault(peer, _) = notice {
            blamed.push(peer);
        }
    };
    let mut crowd = Crowd::new(&line, donors, BRIEF);
    let got = block_on(whole.fetch(&mut crowd, &line, &mut tell));
    (got, blamed)
}

#[test]
fn parts_come_from_all_donors_and_none_is_asked_twice_without_need() {
    let (done, blamed, asked) = by_parts(&[HONEST, OTHER]);
    assert!(done && blamed.is_empty());
    assert!(asked[&HONEST] > 2 && asked[&OTHER] > 2, "{asked:?}");
}

#[test]
fn a_donor_that_lies_is_named_once_left_out_and_the_rest_is_kept() {
    for liar in [LIAR, SWAPPER, DRIP, ENDLESS] {
        let (done, blamed, asked) = by_parts(&[liar, HONEST]);
        assert!(done, "{liar:?}");
        assert!(!blamed.is_empty() && blamed.iter().all(|peer| *peer == liar), "{blamed:?}");
        assert!(asked[&liar] <= 4 + 1, "{liar:?} {asked:?}");
    }
}

#[test]
fn a_silent_donor_holds_up_nobody_and_is_left_out() {
    let (done, blamed, asked) = by_parts(&[SILENT, HONEST]);
    assert!(done && blamed.is_empty());
    assert!(asked[&SILENT] <= 2, "{asked:?}");
    let (done, _, asked) = by_parts(&[SILENT]);
    assert!(!done && asked[&SILENT] == 2, "{asked:?}");
}

#[test]
fn a_digest_that_nobody_holds_ends_the_transfer() {
    let (done, blamed, asked) = by_parts(&[EMPTY]);
    assert_eq!((done, blamed, asked[&EMPTY]), (false, vec![], 1));
    assert_eq!(by_parts(&[]), (false, vec![], BTreeMap::new()));
}

#[test]
fn of_what_can_be_checked_only_whole_the_good_one_shows_who_lied() {
    assert_eq!(whole(&[HONEST, OTHER]), (Some(thing()), vec![]));
    for liar in [LIAR, SWAPPER] {
        assert_eq!(whole(&[liar, HONEST]), (Some(thing()), vec![liar]), "{liar:?}");
        assert_eq!(whole(&[HONEST, liar, OTHER]), (Some(thing()), vec![liar]), "{liar:?}");
        assert_eq!(whole(&[liar]), (None, vec![liar]));
    }
    assert_eq!(whole(&[SILENT, EMPTY]), (None, vec![]));
}

#[test]
fn parts_cover_the_whole_and_end() {
    let bytes: Vec<u8> = (0..PART_BYTES + 5).map(|i| i.to_le_bytes()[0]).collect();
    assert_eq!(part_of(&bytes, 0).unwrap().len(), PART_BYTES);
    assert_eq!(part_of(&bytes, PART_BYTES as u64).unwrap(), bytes[PART_BYTES..]);
    assert!(part_of(&bytes, bytes.len() as u64).unwrap().is_empty());
    assert_eq!(part_of(&bytes, u64::MAX), None);
}

/// Whoever answers with the table of another run, or of a model of another shape, or of this state with
/// another epoch, is named; the next donor is asked.
#[test]
fn a_checkpoint_of_another_run_or_shape_is_refused() {
    let header = |run, epoch, parameters| {
        let (run, r) = (intellect_protocol::id::RunId([run; 32]), Digest([2; 32]));
        Header { run, epoch, tokens: 9, r, parameters }
    };
    let table = |header: Header| {
        let numbers = vec![1.0; usize::try_from(header.parameters).unwrap()];
        Table::of(header, &numbers, &numbers).unwrap()
    };
    let right = table(header(1, 3, 5));
    for wrong in [header(2, 3, 5), header(1, 4, 5), header(1, 3, 6)].map(table) {
        let line = Wire::new(|peer, request: Vec<u8>| {
            let table = if peer == LIAR { &wrong } else { &right };
            let request = wire::open_request(&request);
            let asked = matches!(request, Some(Request::Table { offset: 0, .. }));
            std::future::ready(if asked { Ok(table.to_bytes()) } else { Err(FetchError::Refused) })
        });
        let (state, mut blamed) = (right.state(), Vec::new());
        let mut tell = |notice| {
            if let Notice::Fault(peer, _) = notice {
                blamed.push(peer);
            }
        };
        let mut crowd = Crowd::new(&line, &[LIAR, HONEST], BRIEF);
        let found =
            block_on(table_of(&mut crowd, &line, *right.header(), state, &mut tell)).unwrap();
        assert_eq!((found, blamed), (right.clone(), vec![LIAR]));
        // What its donor says of itself must be what the receipts say.
        let mut crowd = Crowd::new(&line, &[HONEST], BRIEF);
        let other = Header { tokens: 10, ..*right.header() };
        assert!(block_on(table_of(&mut crowd, &line, other, state, &mut |_| {})).is_none());
    }
}

/// On a slow line everybody is slow: who brings something, however slowly, is not helped by a second
/// donor, which would take half of the line. Who brings nothing is.
#[test]
fn a_slow_line_carries_nothing_twice() {
    let asked_of = |full: bool| {
        let asked = Mutex::new(Vec::new());
        let answer = |peer, _| {
            asked.lock().unwrap().push(peer);
            std::future::pending()
        };
        let line = Wire { answer, full };
        let mut crowd = Crowd::new(&line, &[HONEST, OTHER], BRIEF);
        crowd.begin([Part { index: 0, request: Vec::new(), length: 9 }]);
        let watch = async { while crowd.next().await.is_some() {} };
        let _ = block_on(async { timeout(BRIEF.slow, watch).await });
        drop(crowd);
        asked.into_inner().unwrap()
    };
    assert_eq!(asked_of(true), [HONEST]);
    assert_eq!(asked_of(false), [HONEST, OTHER]);
}

/// Accepts whatever comes, and welcomes these donors after everything that happens.
async fn all_of<L: Line>(crowd: &mut Crowd<'_, L>, donors: &[PeerId]) {
    while let Some(event) = crowd.next().await {
        if let Event::Part { index, .. } = event {
            crowd.accept(index);
        }
        crowd.welcome(donors);
    }
}

/// The only donor known at first holds its request, and would for minutes.
#[test]
fn donors_are_heard_while_nothing_comes() {
    let line = Wire::new(|peer, _| async move {
        if peer == SILENT { std::future::pending().await } else { Ok(vec![7]) }
    });
    let quick = Duration::from_millis(1);
    let mut crowd = Crowd::new(&line, &[SILENT], Patience { quick, ..CALM });
    crowd.begin([Part { index: 0, request: Vec::new(), length: 1 }]);
    block_on(all_of(&mut crowd, &[OTHER]));
    assert!(crowd.is_done());
}

/// They take turns, so that a request is open always: each refuses when the next one was asked.
#[test]
fn donors_that_hold_a_request_and_refuse_it_hold_up_nobody_for_ever() {
    let asked = Mutex::new(BTreeMap::<PeerId, u32>::new());
    let asked = &asked;
    let line = Wire::new(move |peer, _| {
        let count = move || asked.lock().unwrap().values().sum::<u32>();
        *asked.lock().unwrap().entry(peer).or_default() += 1;
        let before = count();
        async move {
            while count() == before {
                tokio::task::yield_now().await;
            }
            // So that the test ends, whatever becomes of it.
            if before < 100 { Err(FetchError::Refused) } else { Ok(vec![7]) }
        }
    });
    let [quick, slow] = [Duration::from_millis(1), Duration::ZERO];
    let mut crowd = Crowd::new(&line, &[LIAR, OTHER, EMPTY], Patience { quick, slow, ..BRIEF });
    crowd.begin((0..9).map(|index| Part { index, request: Vec::new(), length: 1 }));
    block_on(all_of(&mut crowd, &[]));
    assert!(!crowd.is_done());
    drop(crowd);
    let asked = asked.lock().unwrap();
    assert!(asked.values().all(|times| *times <= 2), "{asked:?}");
}

/// A newcomer has heard of one donor when it begins, and of more as it goes on.
#[test]
fn donors_that_are_heard_later_are_asked_too() {
    let asked = Mutex::new(BTreeMap::<PeerId, u32>::new());
    let line = Wire::new(|peer, _| {
        *asked.lock().unwrap().entry(peer).or_default() += 1;
        std::future::ready(if peer == EMPTY { Err(FetchError::Refused) } else { Ok(vec![7]) })
    });
    let mut crowd = Crowd::new(&line, &[HONEST, EMPTY], CALM);
    crowd.begin((0..40).map(|index| Part { index, request: Vec::new(), length: 1 }));
    block_on(all_of(&mut crowd, &[HONEST, OTHER, EMPTY]));
    assert!(crowd.is_done());
    drop(crowd);
    let asked = asked.into_inner().unwrap();
    assert!(asked[&HONEST] > 5 && asked[&OTHER] > 5, "{asked:?}");
    assert_eq!(asked[&EMPTY], 1, "it was put aside");
}

/// A donor that is fetching the same thing has it a little later. The other one's answers come only
/// when it was asked again.
#[test]
fn a_donor_that_had_nothing_is_asked_again_while_others_are_busy() {
    let asked = Mutex::new(0);
    let asked = &asked;
    let line = Wire::new(move |peer, _| {
        *asked.lock().unwrap() += u32::from(peer == OTHER);
        let asked_again = move || *asked.lock().unwrap() > 1;
        let has = peer == HONEST || asked_again();
        async move {
            while peer == HONEST && !asked_again() {
                tokio::task::yield_now().await;
            }
            if has { Ok(vec![7]) } else { Err(FetchError::Refused) }
        }
    });
    let [quick, slow] = [1, 2].map(Duration::from_millis);
    let mut crowd = Crowd::new(&line, &[OTHER, HONEST], Patience { quick, slow, ..BRIEF });
    crowd.begin((0..9).map(|index| Part { index, request: Vec::new(), length: 1 }));
    block_on(all_of(&mut crowd, &[]));
    assert!(crowd.is_done());
    assert!(crowd.active().contains(&OTHER));
}

/// The pause after each refusal is twice the one before, up to a bound; refusals at once are one.
#[test]
fn pauses_grow_to_a_bound() {
    let mut donor = crowd::Donor::new(OTHER, Duration::from_secs(2));
    let mut now = tokio::time::Instant::now();
    let mut pauses = Vec::new();
    for _ in 0..4 {
        donor.put_aside(now, Duration::from_secs(9));
        donor.put_aside(now, Duration::from_secs(9));
        let begin = now;
        while !donor.is_free(now) {
            now += Duration::from_secs(1);
        }
        pauses.push((now - begin).as_secs());
    }
    assert_eq!(pauses, [2, 4, 8, 9]);
}

#[test]
fn a_donor_that_only_refuses_is_left_out() {
    let mut donor = crowd::Donor::new(OTHER, Duration::from_secs(2));
    let (mut now, longest) = (tokio::time::Instant::now(), Duration::from_secs(9));
    let refusals = (0..100).take_while(|_| {
        let is_free = donor.is_free(now);
        donor.put_aside(now, longest);
        now += longest;
        is_free
    });
    assert_eq!(refusals.count(), 6);
}

/// The table of published weights, whatever they are.
fn published(theta: &[f32], v: &[f32]) -> Table {
    let digest = |numbers: &[f32]| *blake3::hash(&bytes_of(numbers)).as_bytes();
    let header = Header::published(theta.len() as u64).to_bytes();
    let bytes = [&header[..], &digest(theta), &digest(v)].concat();
    Table::from_bytes(&bytes, &Digest::derive("intellect-node 1 state", &bytes)).unwrap()
}

fn bytes_of(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// They are no fault of whoever sends them, and to ask again is in vain.
#[test]
fn weights_of_no_use_are_told_from_weights_that_nobody_has() {
    let fetched = |theta: &[f32], v: &[f32], donor| {
        let table = published(theta, v);
        let line = Wire::new(|peer, request: Vec<u8>| {
            let answer = match wire::open_request(&request) {
                Some(_) if peer == EMPTY => None,
                Some(Request::Table { offset: 0, .. }) => Some(table.to_bytes()),
                Some(Request::Piece { index: 0, .. }) => Some(bytes_of(theta)),
                _ => None,
            };
            std::future::ready(answer.ok_or(FetchError::Refused))
        });
        let folder = tempfile::tempdir().unwrap();
        let run = intellect_protocol::id::RunId([1; 32]);
        let store = Arc::new(Store::open(folder.path(), run).unwrap());
        let donors = watch::channel(vec![donor]).1;
        let blame = |notice| assert!(matches!(notice, Notice::Progress(_)));
        let header = *table.header();
        let found = checkpoint(&line, &store, header, table.state(), donors, blame);
        block_on(found).map(|(_, state)| state.theta().to_vec())
    };
    assert_eq!(fetched(&[1.0, 2.0], &[0.0; 2], HONEST), Ok(vec![1.0, 2.0]));
    assert_eq!(fetched(&[1.0, 2.0], &[0.0; 2], EMPTY), Err(Lack::Nobody));
    let momentum = fetched(&[1.0, 2.0], &[0.0, 1.0], HONEST);
    assert_eq!(momentum, Err(Lack::Useless(Useless::Momentum)));
    let not_finite = fetched(&[1.0, f32::NAN], &[0.0; 2], HONEST);
    assert_eq!(not_finite, Err(Lack::Useless(Useless::NotFinite)));
}

/// The momentum of published weights is nothing but zeros, and is never asked for.
#[test]
fn pieces_of_zeros_need_not_come() {
    let piece = PIECE_BYTES / 4;
    let theta = [vec![0.0; piece], vec![1.0; piece], vec![0.0; 7]].concat();
    let header = Header::published(theta.len() as u64);
    let table = Table::of(header, &theta, &vec![0.0; theta.len()]).unwrap();
    let (state, missing) = block_on(kept_pieces(&table, None)).unwrap();
    assert_eq!(missing, [1]);
    assert_eq!(state.theta().len(), theta.len());
    let one = Table::of(Header::published(7), &[1.0; 7], &[0.0; 7]).unwrap();
    assert_eq!(block_on(kept_pieces(&one, None)).unwrap().1, [0]);
}
