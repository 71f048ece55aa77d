//! Keys without a vote, one or a thousand: they hold up no founding and no
//! Regroup, and keep no peer out.

use intellect_protocol::consensus::sync::LINKS_KEPT;
use intellect_protocol::message::{Answer, Join, Link};

use super::*;

fn fresh(n: u64) -> PeerId {
    let mut key = [0xdd; 32];
    key[..8].copy_from_slice(&n.to_le_bytes());
    PeerId(key)
}

/// Starts `x`, whose own messages reach no peer, and which answers each request
/// with a greater head and no link.
fn answers_with_nothing(world: &mut World, x: usize) -> Played {
    world.direct(move |from, _, _| if from == x { Fate::Drop } else { Fate::Deliver });
    world.start(&[x]);
    world.play(100)?;
    world.call_liar(x);
    world.forge(move |from, _, answer| {
        if from != x {
            return;
        }
        match answer {
            Answer::Lineage { links, head, openings } => {
                links.clear();
                openings.clear();
                (head.epoch, head.tokens) = (head.epoch + 50, head.tokens + 50_000);
                head.state = Digest([7; 32]);
            }
            Answer::Chain(chain) => chain.clear(),
            Answer::Picture(_) => {}
        }
    });
    Ok(())
}

/// Plays until all `hosts` have committed `epoch`, for at most `limit_ms`, while the key of `x`
/// announces a greater head to them every 400 ms.
fn beside_a_claim(
    world: &mut World,
    x: usize,
    hosts: &[usize],
    epoch: u64,
    limit_ms: u64,
) -> Played {
    let mut liar = Liar { ahead: 50, ..Liar::new(world.name(x), LogId([0x77; 16]), 1_000_000) };
    let end_ms = world.now_ms + limit_ms;
    while world.now_ms < end_ms && !all_at(world, hosts, epoch) {
        liar.live(world, hosts);
        world.play(20)?;
    }
    let epochs: Vec<u64> = hosts.iter().map(|host| world.epoch(*host)).collect();
    assert!(all_at(world, hosts, epoch), "after {} s: {epochs:?}", limit_ms / 1_000);
    Ok(())
}

/// G12: a stranger shows our own chain, other than ours from an epoch on whose link is on our disk only. Asked for the
/// link before that epoch, it shows another one than ours. It is asked as seldom as one that proves nothing,
/// and a peer that was away learns from others where the run is.
#[test]
fn a_link_that_contradicts_its_own_chain() -> Played {
    let (mut world, all) = founded(4, 1, None)?;
    let (x, away) = (4, all[3]);
    let epoch = LINKS_KEPT as u64 + 60;
    reach(&mut world, &all, epoch)?;
    answers_with_nothing(&mut world, x)?;
    let some: Noted<Option<Link>> = Rc::default();
    let asked = counter();
    let questions = asked.clone();
    world.forge(move |from, _, answer| match answer {
        Answer::Lineage { links, .. } if from != x => {
            *some.borrow_mut() = links.last().cloned().or_else(|| some.take());
        }
        Answer::Lineage { links, head, .. } => {
            count(&questions);
            head.epoch += 50;
            head.tokens += 50_000;
            match links.first_mut() {
                Some(link) => link.receipt.update = Digest([3; 32]),
                None => links.extend(some.borrow().clone()),
            }
        }
        Answer::Chain(chain) if from == x => {
            let last = chain.last().map_or(0, |link| link.epoch);
            for link in chain.iter_mut().filter(|link| link.epoch + 100 > last) {
                (link.state, link.r) = (Digest([4; 32]), Digest([5; 32]));
            }
        }
        Answer::Chain(_) | Answer::Picture(_) => {}
    });
    world.play(5_000)?;
    world.kill(&[away]);
    reach(&mut world, &all[..3], epoch + 10)?;
    world.start(&[away]);
    beside_a_claim(&mut world, x, &all, epoch + 30, 2 * MINUTE_MS)?;
    assert!((4..40).contains(&asked.get()), "asked {} times", asked.get());
    ends_amid(world, &[Trains, Training, Ring, End::Votes, Update])
}

/// R12: three of eight are left. A stranger announces a greater head and serves no link of it. That
/// delays their Regroup no longer than a stranger which never answers.
#[test]
fn an_answer_with_no_link_holds_up_no_regroup() -> Played {
    let (mut world, all) = founded(8, 1, None)?;
    let (gone, left) = all.split_at(5);
    answers_with_nothing(&mut world, 8)?;
    world.kill(gone);
    beside_a_claim(&mut world, 8, left, 3, MINUTE_MS)?;
    assert_eq!(regroups(&world, left[0])[0], (sorted(left), sorted(gone)));
    ends_amid(world, &[Trains, Update])
}

/// R12, R15: the same while four peers found the run.
#[test]
fn an_answer_with_no_link_holds_up_no_founding() -> Played {
    let mut world = scene(5, 0, None);
    let hosts: Vec<usize> = (0..4).collect();
    answers_with_nothing(&mut world, 4)?;
    world.start(&hosts);
    beside_a_claim(&mut world, 4, &hosts, 1, MINUTE_MS)?;
    ends_amid(world, &[Trains, Update])
}

/// Plays for at most two minutes until these hosts have committed `epoch`, while twice a second a
/// fresh key announces a greater head and answers no request.
fn beside_fresh_claims(world: &mut World, hosts: &[usize], epoch: u64) -> Played {
    let end_ms = world.now_ms + 2 * MINUTE_MS;
    let mut keys = 0;
    while world.now_ms < end_ms && !all_at(world, hosts, epoch) {
        keys += 1;
        Liar { ahead: 50, ..Liar::new(fresh(keys), LogId([9; 16]), 1) }.live(world, hosts);
        world.play(500)?;
    }
    let epochs: Vec<u64> = hosts.iter().map(|host| world.epoch(*host)).collect();
    assert!(all_at(world, hosts, epoch), "after {keys} keys: {epochs:?}");
    Ok(())
}

/// R12: all such claims together delay a Regroup by one grace. If each key had a grace of its own,
/// the survivors would wait forever.
#[test]
fn fresh_keys_with_greater_heads_hold_up_no_regroup() -> Played {
    let (mut world, all) = founded(8, 0, None)?;
    let (gone, left) = all.split_at(5);
    world.kill(gone);
    beside_fresh_claims(&mut world, left, 2)?;
    assert_eq!(regroups(&world, left[0])[0], (sorted(left), sorted(gone)));
    ends(world, &[Trains])
}

/// R12, R15: the same while four peers found the run.
#[test]
fn fresh_keys_with_greater_heads_hold_up_no_founding() -> Played {
    let mut world = scene(4, 0, None);
    let hosts: Vec<usize> = (0..4).collect();
    world.start(&hosts);
    world.play(5)?;
    beside_fresh_claims(&mut world, &hosts, 1)?;
    ends(world, &[Trains])
}

/// A founding of eight with `count` keys of the same age. The n-th key joins the Regroups
/// before number n and no others, so each Regroup lacks one Join more. Returns after how long
/// all have committed an epoch.
fn founded_beside_quitters(count: u64) -> Result<u64, Violation> {
    let mut world = scene(8, 0, None);
    let hosts: Vec<usize> = (0..8).collect();
    world.start(&hosts);
    world.play(5)?;
    let start_ms = world.now_ms;
    let mut liars: Vec<Liar> =
        (1..=count).map(|n| Liar::new(fresh(n), LogId([9; 16]), 1)).collect();
    let heard = overhear(&mut world);
    let mut joined = BTreeSet::new();
    while world.now_ms < start_ms + 10 * MINUTE_MS && !all_at(&world, &hosts, 1) {
        liars.iter_mut().for_each(|liar| liar.live(&mut world, &hosts));
        let said: Vec<_> = heard.borrow_mut().drain(..).collect();
        for (_, message) in said {
            let Message::Regroup(regroup) = message else { continue };
            let digest = wire::regroup_digest(&world.run, &regroup);
            for (n, liar) in (1..).zip(&liars) {
                let named = regroup.members.iter().any(|member| member.peer == liar.name);
                if named && regroup.number < n && joined.insert((liar.name, digest)) {
                    let (series, log) = (regroup.series, liar.log);
                    let join = Join { series, regroup: digest, log, done: None };
                    world.say_as(&hosts, liar.name, &Message::Join(join));
                }
            }
        }
        world.play(10)?;
    }
    assert!(all_at(&world, &hosts, 1), "no founding in 10 minutes");
    let took_ms = world.now_ms - start_ms;
    ends(world, &[Trains])?;
    Ok(took_ms)
}

/// R39: sixteen keys leave a founding one after another. Each Regroup that excludes them costs no
/// more time than the one before.
#[test]
fn sixteen_keys_that_quit_one_by_one_cost_a_founding_seconds() -> Played {
    let (alone_ms, beside_ms) = (founded_beside_quitters(0)?, founded_beside_quitters(16)?);
    assert!(
        beside_ms < alone_ms + MINUTE_MS / 2,
        "{alone_ms} ms alone, {beside_ms} ms beside them"
    );
    Ok(())
}

/// More keys than the view has room for send one message each. A newcomer that comes then is a
/// voter within a minute: the keys must not fill the table.
#[test]
fn keys_that_say_one_word_close_a_run_to_nobody() -> Played {
    let (mut world, all) = founded(4, 1, None)?;
    for n in 0..1_100 {
        Liar::new(fresh(n), LogId([9; 16]), 1).live(&mut world, &all);
    }
    world.play(3_000)?;
    world.start(&[4]);
    let votes = |world: &mut World| world.voters(all[0]).contains(&4);
    assert!(world.until(MINUTE_MS, votes)?, "{:?} vote", world.voters(all[0]));
    ends_amid(world, &[Trains, Applies])
}
