//! Tests of `links`: time is a number here, so every figure is exact.

use super::*;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn link(peer: usize, link: AccessLink) -> Change {
    Change::Access { peer, link }
}

/// Everything that arrives until `until`, with the time of arrival.
fn arrivals(switch: &mut Switch, until: Duration) -> Vec<(Duration, usize, u8)> {
    let mut out = Vec::new();
    while let Some(now) = switch.next().filter(|now| *now <= until) {
        while let Some((to, bytes)) = switch.arrival(now) {
            out.push((now, to, bytes[0]));
        }
    }
    out
}

fn packet(mark: u8, bytes: usize) -> Vec<u8> {
    let mut packet = vec![0; bytes];
    packet[0] = mark;
    packet
}

#[test]
fn a_whole_link_delivers_at_once_and_in_order() {
    let mut switch = Switch::new(3, 1);
    for mark in 0..5 {
        switch.offer(ms(7), 0, 2, packet(mark, 1_000));
    }
    let wanted: Vec<_> = (0..5).map(|mark| (ms(7), 2, mark)).collect();
    assert_eq!(arrivals(&mut switch, ms(7)), wanted);
    assert_eq!(switch.next(), None);
}

/// 1,000 bytes at 100,000 B/s take 10 ms; the second packet waits for the first.
#[test]
fn a_rate_spaces_packets_out_and_the_slower_of_two_lines_decides() {
    let mut switch = Switch::new(2, 1);
    switch.apply(&link(0, AccessLink { rate: Some(100_000), ..AccessLink::default() }));
    switch.offer(ms(0), 0, 1, packet(1, 1_000));
    switch.offer(ms(0), 0, 1, packet(2, 1_000));
    assert_eq!(arrivals(&mut switch, ms(100)), [(ms(10), 1, 1), (ms(20), 1, 2)]);
    switch.apply(&link(1, AccessLink { rate: Some(50_000), ..AccessLink::default() }));
    switch.offer(ms(100), 0, 1, packet(3, 1_000));
    switch.offer(ms(100), 0, 1, packet(4, 1_000));
    assert_eq!(arrivals(&mut switch, ms(300)), [(ms(130), 1, 3), (ms(150), 1, 4)]);
}

/// Both directions have the whole rate.
#[test]
fn a_line_is_duplex_and_two_senders_share_the_way_in() {
    let mut switch = Switch::new(3, 1);
    switch.apply(&link(2, AccessLink { rate: Some(100_000), ..AccessLink::default() }));
    switch.offer(ms(0), 2, 0, packet(1, 1_000));
    switch.offer(ms(0), 0, 2, packet(2, 1_000));
    switch.offer(ms(0), 1, 2, packet(3, 1_000));
    let got = arrivals(&mut switch, ms(100));
    assert_eq!(got, [(ms(10), 2, 2), (ms(10), 0, 1), (ms(20), 2, 3)]);
}

#[test]
fn delays_of_both_lines_add_up() {
    let mut switch = Switch::new(2, 1);
    switch.apply(&link(0, AccessLink { delay: Some(ms(20)), ..AccessLink::default() }));
    switch.apply(&link(1, AccessLink { delay: Some(ms(5)), ..AccessLink::default() }));
    switch.offer(ms(1), 0, 1, packet(1, 100));
    assert_eq!(arrivals(&mut switch, ms(25)), []);
    assert_eq!(arrivals(&mut switch, ms(26)), [(ms(26), 1, 1)]);
}

/// 100 kB/s with 1,500-byte packets: 64 of them are 960 ms, so a full buffer holds these and the
/// one that is being sent.
#[test]
fn what_does_not_fit_into_the_buffer_is_dropped() {
    let mut switch = Switch::new(2, 1);
    switch.apply(&link(0, AccessLink { rate: Some(100_000), ..AccessLink::default() }));
    for mark in 0..200 {
        switch.offer(ms(0), 0, 1, packet(mark, 1_500));
    }
    assert_eq!(arrivals(&mut switch, ms(60_000)).len(), 65);
    assert_eq!(buffer(1_000_000_000), BUFFER);
}

#[test]
fn loss_follows_its_seed_and_its_share() {
    let run = |seed, loss| {
        let mut switch = Switch::new(2, seed);
        switch.apply(&link(1, AccessLink { loss: Some(loss), ..AccessLink::default() }));
        for index in 0..4_000 {
            switch.offer(ms(index), 0, 1, packet(0, 100));
        }
        arrivals(&mut switch, ms(10_000))
    };
    assert_eq!(run(3, 0.25), run(3, 0.25));
    assert_ne!(run(3, 0.25), run(4, 0.25));
    // 4,000 draws of 3/4: σ = 27.
    assert!((2_850..3_150).contains(&run(3, 0.25).len()));
    assert!(run(3, 1.0).is_empty());
}

#[test]
fn a_line_that_is_down_takes_what_is_on_its_way_along() {
    let mut switch = Switch::new(3, 1);
    switch.apply(&link(1, AccessLink { delay: Some(ms(50)), ..AccessLink::default() }));
    switch.offer(ms(0), 0, 1, packet(1, 100));
    switch.apply(&link(1, AccessLink { up: Some(false), ..AccessLink::default() }));
    switch.offer(ms(1), 1, 0, packet(2, 100));
    switch.offer(ms(1), 0, 2, packet(3, 100));
    assert_eq!(arrivals(&mut switch, ms(100)), [(ms(1), 2, 3)]);
    switch.apply(&link(1, AccessLink { up: Some(true), ..AccessLink::default() }));
    switch.offer(ms(100), 0, 1, packet(4, 100));
    assert_eq!(arrivals(&mut switch, ms(200)), [(ms(150), 1, 4)]);
}

#[test]
fn peers_that_are_cut_off_together_still_talk() {
    let mut links = Links::new(5);
    let pairs = |links: &Links| {
        let all = (0..5).flat_map(|a| (a + 1..5).map(move |b| (a, b)));
        all.filter(|(a, b)| links.join(*a, *b) && links.join(*b, *a)).collect::<Vec<_>>()
    };
    links.apply(&Change::Cut([0, 1].into()));
    assert_eq!(pairs(&links), [(0, 1), (2, 3), (2, 4), (3, 4)]);
    links.apply(&Change::Cut([4].into()));
    assert_eq!(pairs(&links), [(0, 1), (2, 3)]);
    links.apply(&Change::Heal);
    assert_eq!(pairs(&links).len(), 10);
}

#[test]
fn a_black_hole_swallows_one_way_or_both_until_it_is_healed() {
    let mut links = Links::new(3);
    links.apply(&Change::BlackHole { from: 0, to: 1, both: false });
    links.apply(&Change::BlackHole { from: 1, to: 2, both: true });
    assert!(!links.join(0, 1) && links.join(1, 0));
    assert!(!links.join(1, 2) && !links.join(2, 1));
    links.apply(&link(0, AccessLink { loss: Some(0.5), ..AccessLink::default() }));
    links.apply(&Change::Heal);
    assert!(links.join(0, 1) && links.join(1, 2));
    assert_eq!(links.ports[0].loss, 0.5, "healing keeps the properties of a link");
    assert!(!links.join(0, 3), "there is no such port");
}
