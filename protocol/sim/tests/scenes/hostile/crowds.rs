//! Keys that are no voters, one or a thousand of them: they hold up no founding and no Regroup, and keep nobody out.

use intellect_protocol::message::{Answer, Join};

use super::*;

fn fresh(n: u64) -> PeerId {
    let mut key = [0xdd; 32];
    key[..8].copy_from_slice(&n.to_le_bytes());
    PeerId(key)
}

/// Starts `x`, whose own words reach nobody, and who answers each question with a greater head and with no link.
fn answers_with_nothing(stage: &mut World, x: usize) -> Played {
    stage.direct(move |from, _, _| if from == x { Fate::Drop } else { Fate::Deliver });
    stage.start(&[x]);
    stage.play(100)?;
    stage.call_liar(x);
    stage.forge(move |from, _, answer| {
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
        }
    });
    Ok(())
}

/// Plays until all `hosts` have committed `epoch`, at most for `limit_ms`; each 400 ms the key of `x` tells them of
/// a greater head.
fn beside_a_claim(
    stage: &mut World,
    (x, hosts): (usize, &[usize]),
    epoch: u64,
    limit_ms: u64,
) -> Played {
    let mut liar = Liar { ahead: 50, ..Liar::new(stage.name(x), LogId([0x77; 16]), 1_000_000) };
    let end_ms = stage.now_ms + limit_ms;
    while stage.now_ms < end_ms && !all_at(stage, hosts, epoch) {
        liar.live(stage, hosts);
        stage.play(20)?;
    }
    let epochs: Vec<u64> = hosts.iter().map(|host| stage.epoch(*host)).collect();
    assert!(all_at(stage, hosts, epoch), "after {} s: {epochs:?}", limit_ms / 1_000);
    Ok(())
}

/// R12: three are left of eight. A stranger that serves no link of its greater head holds them up no longer than one
/// that never answers.
#[test]
fn an_answer_with_no_link_holds_up_no_regroup() -> Played {
    let (mut stage, all) = founded(8, 1, None)?;
    let (gone, left) = all.split_at(5);
    answers_with_nothing(&mut stage, 8)?;
    stage.kill(gone);
    beside_a_claim(&mut stage, (8, left), 3, MINUTE_MS)?;
    assert_eq!(regroups(&stage, left[0])[0], (sorted(left), sorted(gone)));
    Ok(())
}

/// R12, R15.
#[test]
fn an_answer_with_no_link_holds_up_no_founding() -> Played {
    let mut stage = scene(5, 0, None);
    let hosts: Vec<usize> = (0..4).collect();
    answers_with_nothing(&mut stage, 4)?;
    stage.start(&hosts);
    beside_a_claim(&mut stage, (4, &hosts), 1, MINUTE_MS)
}

/// Twice a second a fresh key tells these hosts of a greater head, and answers nobody, until they have committed
/// `epoch`; for two minutes at most.
fn beside_fresh_claims(stage: &mut World, hosts: &[usize], epoch: u64) -> Played {
    let end_ms = stage.now_ms + 2 * MINUTE_MS;
    let mut keys = 0;
    while stage.now_ms < end_ms && !all_at(stage, hosts, epoch) {
        keys += 1;
        Liar { ahead: 50, ..Liar::new(fresh(keys), LogId([9; 16]), 1) }.live(stage, hosts);
        stage.play(500)?;
    }
    let epochs: Vec<u64> = hosts.iter().map(|host| stage.epoch(*host)).collect();
    assert!(all_at(stage, hosts, epoch), "after {keys} keys: {epochs:?}");
    Ok(())
}

/// R12: not each key has a grace of its own.
#[test]
fn fresh_keys_with_greater_heads_hold_up_no_regroup() -> Played {
    let (mut stage, all) = founded(8, 0, None)?;
    let (gone, left) = all.split_at(5);
    stage.kill(gone);
    beside_fresh_claims(&mut stage, left, 2)?;
    assert_eq!(regroups(&stage, left[0])[0], (sorted(left), sorted(gone)));
    Ok(())
}

/// R12, R15.
#[test]
fn fresh_keys_with_greater_heads_hold_up_no_founding() -> Played {
    let mut stage = scene(4, 0, None);
    let hosts: Vec<usize> = (0..4).collect();
    stage.start(&hosts);
    stage.play(5)?;
    beside_fresh_claims(&mut stage, &hosts, 1)
}

/// A founding of eight beside `count` keys that are as old as they are: the n-th joins the Regroups before number n, and
/// no other one, so that each lacks one Join more. Returns after how long they have all committed an epoch.
fn founded_beside_quitters(count: u64) -> Result<u64, Violation> {
    let mut stage = scene(8, 0, None);
    let hosts: Vec<usize> = (0..8).collect();
    stage.start(&hosts);
    stage.play(5)?;
    let start_ms = stage.now_ms;
    let mut liars: Vec<Liar> =
        (1..=count).map(|n| Liar::new(fresh(n), LogId([9; 16]), 1)).collect();
    let heard = overhear(&mut stage);
    let mut joined = BTreeSet::new();
    while stage.now_ms < start_ms + 10 * MINUTE_MS && !all_at(&stage, &hosts, 1) {
        liars.iter_mut().for_each(|liar| liar.live(&mut stage, &hosts));
        let said: Vec<_> = heard.borrow_mut().drain(..).collect();
        for (_, message) in said {
            let Message::Regroup(regroup) = message else { continue };
            let digest = wire::regroup_digest(&stage.run, &regroup);
            for (n, liar) in (1..).zip(&liars) {
                let named = regroup.members.iter().any(|member| member.peer == liar.name);
                if named && regroup.number < n && joined.insert((liar.name, digest)) {
                    let (series, log) = (regroup.series, liar.log);
                    let join = Join { series, regroup: digest, log, done: None };
                    stage.say_as(&hosts, liar.name, &Message::Join(join));
                }
            }
        }
        stage.play(10)?;
    }
    assert!(all_at(&stage, &hosts, 1), "no founding in 10 minutes");
    Ok(stage.now_ms - start_ms)
}

/// R39: a round that peels off those who will not found makes the next one no longer.
#[test]
fn sixteen_keys_that_quit_one_by_one_cost_a_founding_seconds() -> Played {
    let (alone_ms, beside_ms) = (founded_beside_quitters(0)?, founded_beside_quitters(16)?);
    assert!(
        beside_ms < alone_ms + MINUTE_MS / 2,
        "{alone_ms} ms alone, {beside_ms} ms beside them"
    );
    Ok(())
}

/// More keys than the view has room for say one word each; the newcomer that comes then is a voter within a minute.
#[test]
fn keys_that_say_one_word_close_a_run_to_nobody() -> Played {
    let (mut stage, all) = founded(4, 1, None)?;
    for n in 0..1_100 {
        Liar::new(fresh(n), LogId([9; 16]), 1).live(&mut stage, &all);
    }
    stage.play(3_000)?;
    stage.start(&[4]);
    let votes = |stage: &mut World| stage.voters(all[0]).contains(&4);
    assert!(stage.until(MINUTE_MS, votes)?, "{:?} vote", stage.voters(all[0]));
    Ok(())
}
