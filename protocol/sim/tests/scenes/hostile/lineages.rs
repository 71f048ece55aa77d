//! Lies about what was committed: a chain that never was, and lineages minted with two keys.

use intellect_protocol::access::admit::Level;
use intellect_protocol::base::rule::Rules;
use intellect_protocol::base::sign::Keypair;
use intellect_protocol::history::lineage::{Capacity, Validator};
use intellect_protocol::message::{Answer, Certificate, Join, Link, Opening, QuorumRule, Regroup};

use super::*;

/// G12: a peer comes back and asks the peer with the smallest name first, which
/// answers with a forged chain: its last common state is another one. The peer must
/// believe the others and follow them.
#[test]
fn a_forged_chain_is_believed_of_nobody() -> Played {
    let (mut world, all) = founded(5, 0, None)?;
    let mut by_name = all.clone();
    by_name.sort_by_key(|host| world.name(*host));
    let (x, v) = (by_name[0], by_name[3]);
    reach(&mut world, &all, 2)?;
    world.kill(&[v]);
    let others: Vec<usize> = all.iter().copied().filter(|host| *host != v).collect();
    let base = world.epoch(others[0]);
    for host in &others {
        world.train_in(*host, 3_000);
    }
    reach(&mut world, &others, base + 3)?;
    world.forge(move |from, to, answer| {
        if from != x || to != v {
            return;
        }
        match answer {
            Answer::Lineage { links, .. } => {
                if let Some(link) = links.first_mut() {
                    link.receipt.series.parent = Digest([1; 32]);
                }
            }
            Answer::Chain(chain) => {
                let common = chain.iter_mut().filter(|link| link.epoch == 1 || link.epoch == base);
                common.for_each(|link| link.state = Digest([2; 32]));
            }
            Answer::Picture(_) => {}
        }
    });
    world.direct(move |from, to, message| {
        let late = to == v && from != x && matches!(message, Message::Heartbeat(_));
        if late { Fate::Delay(150) } else { Fate::Deliver }
    });
    world.start(&[v]);
    let caught = |world: &mut World| world.epoch(v) + 1 >= world.epoch(others[0]);
    assert!(world.until(MINUTE_MS, caught)?, "{v} is at {}", world.epoch(v));
    assert!(!reported(&world, v, |event| matches!(event, Event::Diverged { .. })));
    assert!(forks(&world, v).is_empty());
    ends(world, &[Trains, Behind])
}

/// G11: two keys sign a founding and one receipt with weights that no epoch can hold. Such a link
/// does not verify, or their head would be the greatest forever.
#[test]
fn a_minted_weight_is_no_link() {
    let (run, genesis) = (intellect_protocol::base::id::RunId([1; 32]), Digest([2; 32]));
    let keys = [1, 2].map(|seed| Keypair::from_seed(&[seed; 32]));
    let validator = Validator {
        run,
        key: Keypair::from_seed(&[99; 32]),
        peers_min: 2,
        quorum: QuorumRule::Available,
        elements: 94_528,
        capacity: Capacity::Counted(100),
        level: Level::Open,
        organiser: PeerId([9; 32]),
        rules: Rules::ALL,
    };
    let base = Series { epoch: 1, parent: genesis, regroup: None };
    let voter = |key: &Keypair| Voter { peer: key.peer(), log: LogId([key.peer().0[0]; 16]) };
    let members: Vec<Voter> = keys.iter().map(voter).collect();
    let (proposer, absent) = (keys[0].peer(), Vec::new());
    let regroup = Regroup {
        series: base,
        number: 1,
        proposer,
        members: members.clone(),
        absent,
        trust: None,
    };
    let digest = wire::regroup_digest(&run, &regroup);
    let joins = keys.iter().map(|key| {
        let join = Join { series: base, regroup: digest, log: voter(key).log, done: None };
        let signature = wire::seal(key, &run, Message::Join(join.clone())).signature();
        (key.peer(), join, signature)
    });
    let openings = vec![Opening { regroup, joins: joins.collect(), ground: None }];
    for weight in [u64::MAX / 4, u64::MAX] {
        let member = |v: &Voter| Member { peer: v.peer, log: v.log, incarnation: 1, weight };
        let roster = Roster {
            series: base.regrouped(wire::opening_digest(&run, &openings[0])),
            attempt: 1,
            proposer,
            members: members.iter().map(member).collect(),
            heard: Vec::new(),
            adopt: None,
            trust: None,
            keep: Vec::new(),
        };
        let receipt = roster.receipt(Digest([7; 32]));
        let done = Message::Done(validator.done(&roster, &receipt));
        let dones = keys.iter();
        let dones = dones.map(|k| (k.peer(), wire::seal(k, &run, done.clone()).signature()));
        let certificate = Certificate { roster, dones: dones.collect() };
        let link = Link { receipt, certificate, openings: openings.clone() };
        let checked =
            validator.check_link(base, &[], None, validator.capacity.weight_max(None), &link);
        assert!(checked.is_err(), "two keys mint {weight} tokens each: {checked:?}");
    }
}

/// Two keys found the run again for themselves and commit `epochs` epochs, each with a claim
/// of `tokens` trained tokens. Then they meet three honest peers that have committed 20
/// epochs, which must keep them.
fn two_keys_mint(tokens: u64, epochs: u64) -> Played {
    let mut world = scene(5, 0, None);
    world.undo_at_most(16);
    let (honest, minters) = ([0, 1, 2], [3, 4]);
    world.cut(&minters, 1);
    minters.iter().for_each(|host| world.boast(*host, tokens));
    world.start(&[0, 1, 2, 3, 4]);
    assert!(world.until(END_MS, |world| all_at(world, &minters, epochs))?);
    minters.iter().for_each(|host| world.train_in(*host, 60 * MINUTE_MS));
    reach(&mut world, &honest, 20)?;
    let before = world.head(0).unwrap();
    assert!(world.head(3).unwrap().rank(0) > before.rank(0), "they have minted too little");
    world.mend();
    world.play(2 * MINUTE_MS)?;
    for host in honest {
        let (undone, head) = (forks(&world, host), world.head(host).unwrap());
        assert!(undone.iter().all(|undone| *undone == 0), "{host} undid {undone:?} epochs");
        assert!(head.epoch > before.epoch, "{host} is at {head:?}, and was at {before:?}");
    }
    ends(world, &[Trains])
}

/// G11: with weights that no epoch can hold.
#[test]
fn a_minted_lineage_is_followed_by_nobody() -> Played {
    two_keys_mint(1 << 40, 2)
}

/// G11: with the greatest weights that an epoch can hold.
#[test]
fn a_boasted_lineage_from_genesis_is_followed_by_nobody() -> Played {
    two_keys_mint(BOAST, 80)
}

/// The greatest weight in an epoch of the simulated run: eight times its budget.
const BOAST: u64 = 800;

/// As [`founded`], but no greater head undoes more than `undo_max` epochs of these peers.
fn founded_with(count: usize, undo_max: u64) -> Result<(World, Vec<usize>), Violation> {
    let mut world = scene(count, 0, None);
    world.undo_at_most(undo_max);
    let hosts: Vec<usize> = (0..count).collect();
    world.start(&hosts);
    assert!(world.until(END_MS, |world| all_at(world, &hosts, 1))?);
    let order = world.voters(0);
    Ok((world, order))
}

/// G11: no peer lies here. Two halves of a run are apart for an hour, with an epoch every three
/// seconds. The lesser half follows the greater one, however many epochs that undoes.
#[test]
fn partition_of_an_hour_with_short_epochs() -> Played {
    let (mut world, all) = founded_with(4, 64)?;
    world.cut(&all[2..], 1);
    all.iter().for_each(|host| world.train_in(*host, 3_000));
    world.play(60 * MINUTE_MS)?;
    let epochs: Vec<u64> = all.iter().map(|host| world.epoch(*host)).collect();
    assert!(epochs.iter().all(|epoch| *epoch > 1_000), "{epochs:?}");
    world.mend();
    assert!(world.until(5 * MINUTE_MS, |world| world.same(&all))?, "{epochs:?}");
    let undone: u64 = all.iter().flat_map(|host| forks(&world, *host)).max().unwrap();
    assert!(undone > 1_000, "{undone}");
    let epoch = world.epoch(all[0]);
    reach(&mut world, &all, epoch + 5)?;
    ends(world, &[Trains])
}
