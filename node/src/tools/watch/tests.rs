//! A watcher among members that are played here: an honest one, and one that lies about itself.

use std::sync::{Arc, Mutex};

use intellect_protocol::{
    access::admit::Level,
    base::id::Digest,
    download::Failure,
    message::{Answer, Ask, Head, Link, Loss, Phase, Picture, Request, Row, wire},
};
use intellect_view::{lines, picture::Source, record::Text, replay::Speed, stage::Stage};

use super::{follow::Watch, members::Asked, *};
use crate::{
    name::Hex,
    tools::receipts::tests::{lineage, manifest},
};

const HONEST: PeerId = PeerId([1; 32]);
const LIAR: PeerId = PeerId([2; 32]);
const OTHER: Digest = Digest([7; 32]);

/// What a member answers: its head, and its links.
#[derive(Clone)]
struct Member {
    head: Head,
    links: Vec<Link>,
    /// Whether it answers nothing about its lineage.
    is_mute: bool,
}

impl Member {
    fn answer(&self, peer: PeerId, request: &Request) -> Option<Answer> {
        let Self { head, links, is_mute } = self.clone();
        Some(match request {
            Request::Ask(_) if is_mute => return None,
            Request::Ask(Ask::Lineage { from_epoch }) => {
                let wanted = |link: &Link| link.receipt.series.epoch >= *from_epoch;
                let links = links.into_iter().filter(wanted).collect();
                Answer::Lineage { links, head, openings: Vec::new() }
            }
            Request::Picture => {
                let (phase, loss) = (Phase::Train, Loss(2.5));
                let row =
                    Row { peer, epoch: head.epoch, phase, ready: 0, loss, rtt_ms: 0, send_rate: 0 };
                Answer::Picture(Picture { head, rows: vec![row] })
            }
            other => panic!("{other:?} is no question of a watcher"),
        })
    }
}

/// A watcher, its two members, and the members that it has left.
struct Kit {
    folder: tempfile::TempDir,
    members: Arc<Mutex<[Member; 2]>>,
    blamed: Arc<Mutex<Vec<PeerId>>>,
    watch: Watch,
}

impl Kit {
    /// Both members have these epochs of the run.
    fn new(lineage: &[(Head, Link)]) -> Self {
        Self::start(tempfile::tempdir().unwrap(), PeerId([3; 32]), lineage, None)
    }

    /// The same in this folder, where an earlier watcher may have reported up to an epoch and its
    /// state, with this key.
    fn start(
        folder: tempfile::TempDir,
        me: PeerId,
        lineage: &[(Head, Link)],
        reported: Option<(u64, Digest)>,
    ) -> Self {
        let member = member(lineage);
        let members = Arc::new(Mutex::new([member.clone(), member]));
        let played = Arc::clone(&members);
        let (net, blamed) = net::tests::played(&[HONEST, LIAR], move |peer, request| {
            let request = wire::open_request(request).unwrap();
            let [honest, liar] = &*played.lock().unwrap();
            let member = if peer == HONEST { honest } else { liar };
            member
                .answer(peer, &request)
                .map(|answer| wire::answer(&answer))
                .ok_or(Failure::Refused)
        });
        let path = folder.path().join("events.jsonl");
        let sink = Sink::open(Some(&path), writer(Some(&path), me)).unwrap();
        let console = Console::new(sink, Voice::Quiet, PathBuf::new());
        let refused = watch::Sender::default().subscribe();
        let reported = reported.map(|(epoch, state)| (epoch, Text::new(&state.hex())));
        let watch = Watch::new(net, manifest(Level::Open), me, refused, reported, console);
        Self { folder, members, blamed, watch }
    }

    async fn turn(&mut self) {
        self.watch.turn().await.unwrap();
        // The network that is played takes its commands.
        tokio::task::yield_now().await;
        // A member that was left is not asked again.
        for left in self.blamed.lock().unwrap().iter() {
            assert_eq!(*left, LIAR);
        }
    }

    fn left(&self) -> usize {
        self.blamed.lock().unwrap().len()
    }

    fn events(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("events.jsonl")).unwrap()
    }
}

fn member(lineage: &[(Head, Link)]) -> Member {
    let (head, _) = lineage.last().unwrap();
    let links = lineage.iter().map(|(_, link)| link.clone()).collect();
    Member { head: *head, links, is_mute: false }
}

fn epochs() -> Vec<(Head, Link)> {
    lineage(&manifest(Level::Open), None)
}

#[tokio::test]
async fn what_members_prove_is_reported_with_what_they_say() {
    let all = epochs();
    let mut kit = Kit::new(&all[..2]);
    kit.turn().await;
    *kit.members.lock().unwrap() = [member(&all), member(&all)];
    kit.turn().await;
    let events = kit.events();
    for (head, _) in &all {
        let told = format!("\"state\":\"{}\"", Hex::from(head.state).as_str());
        let line =
            events.lines().find(|line| line.contains("committed") && line.contains(&told)).unwrap();
        assert!(line.contains(&format!("\"tokens\":{},", head.tokens)), "{line}");
    }
    assert!(events.contains("\"event\":\"caught-up\"") && events.contains("\"loss\":2.5"));
    assert_eq!(kit.left(), 0);
}

#[tokio::test]
async fn a_loss_is_given_to_the_epoch_of_which_its_member_spoke() {
    let all = epochs();
    let who = all[0].1.receipt.members[0].peer;
    let said = Arc::new(Mutex::new((0, 0)));
    let played = Arc::clone(&said);
    let (net, _) = net::tests::played(&[who], move |peer, _| {
        let (epoch, ready) = *played.lock().unwrap();
        let (phase, loss) = (Phase::Train, Loss(2.5));
        let row = Row { peer, epoch, phase, ready, loss, rtt_ms: 0, send_rate: 0 };
        let head = Head { epoch, tokens: 0, state: OTHER };
        Ok(wire::answer(&Answer::Picture(Picture { head, rows: vec![row] })))
    });
    let mut asked = Asked::new(net, PeerId([3; 32]));
    // The last epoch and the frozen work that it names, and which epochs have a loss then.
    for (says, known) in [((1, 0), [1, 1]), ((1, 7), [1, 2]), ((3, 0), [2, 3]), ((3, 7), [3, 4])] {
        *said.lock().unwrap() = says;
        assert!(asked.ask().await.is_empty());
        for (head, link) in &all {
            let loss = asked.loss(&link.receipt);
            assert_eq!(loss, known.contains(&head.epoch).then_some(2.5), "{says:?} {}", head.epoch);
        }
    }
}

#[tokio::test]
async fn a_replay_follows_every_start_in_a_folder() {
    let all = epochs();
    let mut kit = Kit::new(&all[..2]);
    kit.turn().await;
    let reported = Some((2, all[1].0.state));
    let mut kit = Kit::start(kit.folder, PeerId([4; 32]), &all, reported);
    kit.turn().await;
    let player = Player::open(&[kit.folder.path().join("events.jsonl")], false).unwrap();
    let (mut stage, seen) = Stage::new(Source::default());
    stage.seen_by(player.first_writer().unwrap().clone());
    let (_keep, stop) = std::sync::mpsc::channel();
    player.play(&mut stage, Speed { times: 0.0, follow: false }, &stop).unwrap();
    let drawn = lines::lines(&seen.picture.borrow(), 200);
    assert!(drawn[0].starts_with("epoch 4 "), "{drawn:?}");
}

/// A start with what is known, one after which another lineage is the run's, and one whose members
/// have less.
#[tokio::test]
async fn a_start_in_a_known_folder_reports_what_is_new() {
    let all = epochs();
    for (reported, epochs) in [((2, all[1].0.state), 4), ((2, OTHER), 6), ((9, OTHER), 2)] {
        let mut kit = Kit::new(&all[..2]);
        kit.turn().await;
        let mut kit = Kit::start(kit.folder, PeerId([4; 32]), &all, Some(reported));
        kit.turn().await;
        kit.turn().await;
        assert_eq!(kit.events().matches("\"committed\"").count(), epochs, "{reported:?}");
        let caught_up = 1 + usize::from(epochs > 2);
        assert_eq!(kit.events().matches("\"caught-up\"").count(), caught_up, "{reported:?}");
    }
}

#[tokio::test]
async fn a_head_that_is_not_proved_costs_a_member_its_place() {
    let mut kit = Kit::new(&epochs());
    kit.members.lock().unwrap()[1].head.epoch = 9;
    kit.turn().await;
    kit.turn().await;
    assert_eq!(kit.left(), 1);
    assert!(kit.events().contains("it says that it is at epoch 9, and proves none after epoch 4"));
}

#[tokio::test]
async fn a_link_without_a_majority_is_a_lie() {
    let all = epochs();
    let mut kit = Kit::new(&all[..2]);
    kit.turn().await;
    kit.members.lock().unwrap()[1] = member(&all);
    kit.members.lock().unwrap()[1].links[2].certificate.dones.pop();
    kit.turn().await;
    assert_eq!(kit.left(), 1);
    assert!(kit.events().contains("it does not prove epoch 3: "), "{}", kit.events());
}

#[tokio::test]
async fn a_state_that_members_differ_about_is_decided_by_the_next_epoch() {
    let all = epochs();
    let mut kit = Kit::new(&all[..3]);
    kit.turn().await;
    kit.members.lock().unwrap()[1].head.state = OTHER;
    kit.turn().await;
    assert_eq!(kit.left(), 0);
    assert!(kit.events().contains("\"reason\":\"members-differ\""), "{}", kit.events());
    kit.members.lock().unwrap()[0] = member(&all);
    kit.turn().await;
    assert_eq!(kit.left(), 1);
    assert!(kit.events().contains("it named another state after epoch 3"));
}

#[tokio::test]
async fn a_member_that_proves_nothing_keeps_nobody_from_being_asked() {
    let all = epochs();
    let mut kit = Kit::new(&all);
    {
        let [_, liar] = &mut *kit.members.lock().unwrap();
        (liar.head.epoch, liar.is_mute) = (9, true);
    }
    kit.turn().await;
    assert!(!kit.events().contains("committed"));
    kit.turn().await;
    assert_eq!((kit.events().matches("\"committed\"").count(), kit.left()), (4, 0));
}
