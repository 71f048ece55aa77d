//! Voters that lie: what one of them may cost in attempts, and what it may say of votes.

use intellect_protocol::message::{Accept, Ranked, Report};

use super::*;

/// One of five voters asks as it likes for the next attempt, `every_ms` and after each roster `after_ms`. It is
/// never Ready, which costs each epoch the wait for it, of 4 s. Few attempts are in vain.
fn one_voter_asks(every_ms: Option<u64>, after_ms: Option<u64>) -> Played {
    let length_ms = 3 * MINUTE_MS;
    let (mut stage, all) = founded(5, 0, None)?;
    let (x, honest) = all.split_last().unwrap();
    let mut liars = [Liar::voter(&stage, *x, honest[0])];
    stage.kill(&[*x]);
    let (mut next_ms, mut attempt, mut series) = (0, 2, None);
    let mut due = Vec::new();
    lie(&mut stage, honest, &mut liars, length_ms, |stage, liars, said| {
        let now_ms = stage.now_ms;
        match &said {
            Some((_, Message::Roster(roster))) => {
                if series.replace(roster.series) != Some(roster.series) {
                    attempt = 2;
                }
                attempt = attempt.max(roster.attempt + 1);
                let digest = wire::roster_digest(&stage.run, roster);
                let accept = Accept { series: roster.series, roster: digest };
                stage.say_as(honest, liars[0].name, &Message::Accept(accept));
                after_ms.into_iter().for_each(|after| due.push(now_ms + after));
            }
            Some((_, Message::Query(query))) if Some(query.series) == series => {
                attempt = attempt.max(query.attempt + 1);
            }
            _ => {}
        }
        let mut asks = due.extract_if(.., |at_ms| *at_ms <= now_ms).count() > 0;
        if let Some(every_ms) = every_ms.filter(|_| now_ms >= next_ms) {
            next_ms = now_ms + every_ms;
            asks = true;
        }
        if let Some(series) = series.filter(|_| asks) {
            liars[0].ask(stage, honest, series, attempt);
            attempt += 1;
        }
    })?;
    let epochs = least_epoch(&stage, honest) - 1;
    let attempts = stage.report.of(Count::Attempts);
    let due = length_ms / 6_000;
    assert!(epochs >= due, "{epochs} epochs instead of {due}, {attempts} attempts in vain");
    assert!(attempts <= epochs, "{attempts} attempts in vain for {epochs} epochs");
    assert_voters(&stage, honest);
    Ok(())
}

/// G3.
#[test]
fn a_voter_that_asks_all_the_time_costs_few_attempts() -> Played {
    one_voter_asks(Some(20), None)
}

/// G3.
#[test]
fn a_voter_that_asks_while_rings_run_costs_few_attempts() -> Played {
    one_voter_asks(None, Some(6))
}

/// G4: one of five voters is Ready and refuses each roster that names it. It costs each epoch two attempts at most.
#[test]
pub(super) fn a_voter_that_refuses_every_roster_has_no_place() -> Played {
    let (mut stage, all) = founded(5, 0, None)?;
    let (x, honest) = all.split_last().unwrap();
    let mut liars = [Liar { ready: 100, ..Liar::voter(&stage, *x, honest[0]) }];
    stage.kill(&[*x]);
    let mut told = BTreeSet::new();
    lie(&mut stage, honest, &mut liars, MINUTE_MS, |stage, liars, said| {
        let Some((_, Message::Roster(roster))) = said else { return };
        let digest = wire::roster_digest(&stage.run, &roster);
        let place = roster.member(&liars[0].name).is_some_and(|member| member.weight > 0);
        if place && told.insert(digest.0) {
            liars[0].refuse(stage, &roster);
        }
    })?;
    let (epochs, attempts) = (least_epoch(&stage, honest) - 1, stage.report.of(Count::Attempts));
    assert!(!told.is_empty(), "it never had a place");
    assert!(epochs >= 10 && attempts <= 3 * epochs, "{epochs} epochs, {attempts} attempts in vain");
    assert_voters(&stage, honest);
    Ok(())
}

/// G13: one of six accepts and never sends. Epochs that wait for it become few.
#[test]
pub(super) fn who_never_sends_is_remembered() -> Played {
    let (mut stage, all) = founded(6, 0, None)?;
    let (x, honest) = all.split_last().unwrap();
    stage.send_in_rings(*x, Sends::Never);
    reach(&mut stage, honest, 20)?;
    let places = (2..=20)
        .filter(|epoch| weight(&stage, &commit(&stage, honest[0], *epoch), *x).unwrap_or(0) > 0);
    let (places, attempts) = (places.count(), stage.report.of(Count::Attempts));
    assert!(places == 0 && attempts <= 30, "{places} places, {attempts} attempts in vain");
    Ok(())
}

/// G14: a majority of five has voted, of which only `x`'s vote is heard by `c` and `d`: it lies, and says that it
/// has voted for nothing. They take no other value, and what was decided stays.
#[test]
pub(super) fn who_hides_its_vote_is_not_heard() -> Played {
    let (mut stage, all) = founded(5, 0, None)?;
    let [a, b, c, d, x] = all[..] else { unreachable!() };
    for host in [c, d] {
        stage.train_in(host, 60_000);
        stage.load_in(host, 8 * 60_000);
    }
    let votes = Votes::default();
    let noted = votes.clone();
    stage.direct(move |from, to, message| match message {
        Message::Done(done) if epoch_of(message) == 2 => {
            noted.borrow_mut().insert(from, done.update);
            let shown = from == x || ![c, d].contains(&to);
            if shown && [c, d, x].contains(&to) { Fate::Deliver } else { Fate::Drop }
        }
        Message::Commit(_) => Fate::Drop,
        _ => Fate::Deliver,
    });
    let voted = |votes: &Votes| [a, b, x].iter().all(|host| votes.borrow().contains_key(host));
    assert!(stage.until(END_MS, |_| voted(&votes))?, "{:?}", votes.borrow());
    let decided = votes.borrow()[&x];
    let mut liars = [Liar::voter(&stage, x, c)];
    stage.kill(&[a, b, x]);
    [c, d].iter().for_each(|host| stage.train_in(*host, 400));
    lie(&mut stage, &[c, d], &mut liars, 7_000, |stage, liars, said| match said {
        Some((from, Message::Query(Query { series, attempt, .. }))) => {
            let log = liars[0].log;
            let status = Status { series, log, attempt, done: None, holds_forced: false };
            stage.say_as(&[c, d], liars[0].name, &Message::Status(status));
            let (chunks, ready, present) = (Vec::new(), None, Vec::new());
            let report = Report { series, attempt, chunks, ready, present };
            stage.say_as(&[from], liars[0].name, &Message::Report(report));
        }
        Some((_, Message::Roster(roster))) => {
            let (series, roster) = (roster.series, wire::roster_digest(&stage.run, &roster));
            let accept = Accept { series, roster };
            stage.say_as(&[c, d], liars[0].name, &Message::Accept(accept));
        }
        _ => {}
    })?;
    let taken = [c, d].map(|host| stage.commit(host, 2).map(|committed| committed.receipt.update));
    assert!(taken.iter().flatten().all(|update| *update == decided), "{taken:?}, not {decided}");
    stage.start(&[a, b]);
    [c, d].iter().for_each(|host| stage.load_in(*host, 0));
    reach(&mut stage, &[a, b, c, d], 2)?;
    assert_eq!(commit(&stage, c, 2).receipt.update, decided);
    Ok(())
}

/// D1, G14: a voter that lies shows votes of its own above every attempt, in its Status and in a roster that
/// adopts what nobody has computed. Neither is read.
#[test]
fn a_vote_above_its_own_attempt_forces_nothing() -> Played {
    for high in [3, u64::MAX] {
        let (mut stage, all) = founded(4, 0, None)?;
        let (x, honest) = all.split_last().unwrap();
        let liar = Liar::voter(&stage, *x, honest[0]);
        stage.kill(&[*x]);
        let (series, attempt) = (stage.series(honest[0]).unwrap(), 2);
        let members = members(&stage, honest[0], &[(honest[0], 0), (*x, 100)], |voters| voters);
        let mut roster = free_roster(&stage, series, attempt, liar.name, members);
        let receipt = roster.receipt(Digest([7; 32]));
        let r = wire::receipt_digest(&stage.run, &receipt);
        roster.adopt = Some(receipt);
        let done = Some(Ranked { depth: 0, attempt: high, r });
        let status = Status { series, log: liar.log, attempt, done, holds_forced: false };
        let key = Keypair::simulated(liar.name);
        let signed = wire::seal(&key, &stage.run, Message::Status(status)).signature();
        for heard in roster.heard.iter_mut().filter(|heard| heard.voter.peer == liar.name) {
            (heard.done, heard.signature) = (done, signed);
        }
        liar.ask(&mut stage, honest, series, attempt);
        stage.play(5)?;
        stage.say_as(honest, liar.name, &Message::Status(status));
        stage.say_as(honest, liar.name, &Message::Roster(roster));
        reach(&mut stage, honest, 2)?;
        assert_ne!(commit(&stage, honest[0], 2).receipt.update, Digest([7; 32]));
        let of_it = stage.blamed.iter().filter(|(who, fault)| {
            *who == liar.name && fault.to_string().contains("nobody can have given")
        });
        assert_eq!(of_it.count(), 2 * honest.len(), "{:?}", stage.blamed);
    }
    Ok(())
}

/// G5: one of six voters lives and is never Ready, where an epoch's training takes a minute. In an hour the others commit
/// nine tenths of what they do without it.
#[test]
fn g5_a_voter_that_is_never_ready_costs_little() -> Played {
    let mut committed = Vec::new();
    for ready in [true, false] {
        let (mut stage, all) = founded(6, 0, None)?;
        let (slow, others) = all.split_last().unwrap();
        all.iter().for_each(|host| stage.train_in(*host, MINUTE_MS));
        let before = least_epoch(&stage, others);
        if !ready {
            stage.train_in(*slow, u64::MAX / 4);
        }
        stage.play(60 * MINUTE_MS)?;
        committed.push(least_epoch(&stage, others) - before);
        assert_voters(&stage, &all);
    }
    assert!(10 * committed[1] >= 9 * committed[0], "{committed:?}");
    Ok(())
}
