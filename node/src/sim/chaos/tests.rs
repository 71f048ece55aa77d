//! Tests of `chaos` on a made-up run of two seconds an epoch, polled every 20 ms.

use super::*;

/// Plays a whole run and returns what was done when. It checks that each action was possible, and that at least one
/// peer was always well.
fn play(rules: &str, seed: u64, peers: usize, epochs: u64) -> Vec<(Duration, u64, Action)> {
    let mut chaos = Chaos::new(rules.parse().unwrap(), seed, epochs);
    let mut running: BTreeSet<usize> = (0..peers).collect();
    let (mut ill, mut log) = (BTreeSet::new(), Vec::new());
    for tick in 0..epochs * 100 {
        let now = Duration::from_millis(20 * tick);
        let committed = tick / 100;
        for action in chaos.take_due(now, committed, &running, &BTreeSet::new()) {
            let could = match &action {
                Action::Peer(PeerAction::Kill, peer) => running.remove(peer) && ill.insert(*peer),
                Action::Peer(PeerAction::Start, peer) => running.insert(*peer) && ill.remove(peer),
                Action::Peer(PeerAction::Stop, peer) => ill.insert(*peer),
                Action::Peer(PeerAction::Continue, peer) => ill.remove(peer),
                Action::Links(Change::Access { peer, link }) => match link.up {
                    Some(false) => ill.insert(*peer),
                    _ => ill.remove(peer),
                },
                _ => false,
            };
            assert!(could, "{action}");
            assert!(ill.len() < peers, "no peer is well");
            log.push((now, committed, action));
        }
    }
    assert!(ill.is_empty(), "{ill:?} are still hurt at the end");
    log
}

/// The kills among what was done.
fn kills(log: &[(Duration, u64, Action)]) -> impl Iterator<Item = &(Duration, u64, Action)> {
    log.iter().filter(|(.., action)| matches!(action, Action::Peer(PeerAction::Kill, _)))
}

#[test]
fn one_peer_dies_in_each_epoch_between_the_calm_ones() {
    let log = play("kill each epoch", 5, 6, 30);
    let epochs: Vec<u64> = kills(&log).map(|(_, committed, _)| *committed).collect();
    assert_eq!(epochs, (UNDISTURBED_EPOCHS..30 - CALM_EPOCHS).collect::<Vec<_>>());
    let at: BTreeSet<u128> = kills(&log).map(|(now, ..)| now.as_millis() % 2_000).collect();
    assert!(at.len() > 15, "at any instant of the epoch: {at:?}");
    let last = log.last().unwrap();
    assert!(last.1 <= 30 - CALM_EPOCHS, "{last:?}");
}

#[test]
fn a_rhythm_has_its_gap_and_its_length() {
    let log = play("kill every 3s for 20s", 5, 4, 40);
    let kills: Vec<Duration> = kills(&log).map(|(now, ..)| *now).collect();
    let wanted: Vec<_> = (1..7).map(|k| Duration::from_secs(4 + 3 * k)).collect();
    assert_eq!(kills, wanted);
}

#[test]
fn equal_seeds_give_equal_chaos_and_others_do_not() {
    let rules = "kill every 2s for 40s, stop every 3s for 40s, cut each epoch";
    assert_eq!(play(rules, 1, 5, 40), play(rules, 1, 5, 40));
    assert_ne!(play(rules, 1, 5, 40), play(rules, 2, 5, 40));
}

#[test]
fn the_last_well_peer_is_spared_and_so_are_those_of_the_scenario() {
    let log = play("kill every 100ms for 1m", 3, 2, 40);
    assert!(log.len() > 20, "{}", log.len());
    assert!(play("kill each epoch", 3, 1, 40).is_empty());

    let mut chaos = Chaos::new("kill each epoch".parse().unwrap(), 3, 100);
    let (running, spared) = ((0..3).collect(), [0, 2].into());
    let mut hurt = BTreeSet::new();
    for committed in 0..90 {
        let now = Duration::from_secs(10 * committed);
        let due = chaos.take_due(now, committed, &running, &spared);
        hurt.extend(due.iter().filter_map(|action| match action {
            Action::Peer(_, peer) => Some(*peer),
            _ => None,
        }));
    }
    assert_eq!(hurt, [1].into());
    assert!(chaos.has_hurt(1) && !chaos.has_hurt(0));
    assert!(chaos.counts()[0] > 30);
}

#[test]
fn rules_are_read_and_shown_and_mistakes_are_named() {
    let text = "kill every 5s for 300s, stop each epoch, cut every 1.5s for 60s";
    let typed = "kill every 5s for 5m,stop each epoch , cut every 1500ms for 1m";
    assert_eq!(typed.parse::<ChaosRules>().unwrap().to_string(), text);
    assert!(typed.parse::<ChaosRules>().unwrap().has_links());
    assert!(!"kill each epoch".parse::<ChaosRules>().unwrap().has_links());
    for wrong in [
        "",
        "kill",
        "kill every 5s",
        "kill every for 5s",
        "kill every 5 for 5m",
        "kill every 0s for 5m",
        "kill every 5s for 5d",
        "kill every -5s for 5m",
        "kill every 99999999999999999999h for 5m",
        "burn every 5s for 5m",
        "kill each hour",
        "kill each epoch,",
    ] {
        let error = wrong.parse::<ChaosRules>().unwrap_err().to_string();
        assert!(error.contains("--chaos") && error.contains("kill each epoch"), "{wrong}: {error}");
    }
}
