//! A run of invited peers, as the network sees it. This file takes the part of the driver, which sets the
//! allow list.

use intellect_protocol::access::handshake::{Outcome, Reception};

use super::*;

const PENDING_MAX: Duration = Duration::from_secs(16);

/// A node that allows `these`, listens on one address, and serves a manifest.
async fn member(seed: u8, bootstrap: &[Multiaddr], these: &[PeerId]) -> Node {
    let node = Node::new(seed, bootstrap);
    node.net.handle.allow(these.iter().copied().collect());
    node.net.handle.join(RUN, b"a manifest".to_vec()).await.unwrap();
    node
}

fn welcome() -> Reception {
    Reception { outcome: Outcome::Welcome, epoch: 7, notice: None }
}

/// The bytes that a peer gets on a stream of one of our protocols, until it is reset.
async fn gets(target: Multiaddr, protocol: &'static str, bytes: Vec<u8>) -> Vec<u8> {
    let (mut swarm, opening) = opened(target, protocol).await;
    let exchange = async {
        let mut stream = opening.await.unwrap().unwrap();
        let mut got = Vec::new();
        // Each of these may fail: the stream may have been reset.
        let _ = stream.write_all(&bytes).await;
        let _ = stream.flush().await;
        let _ = stream.read_to_end(&mut got).await;
        got
    };
    tokio::select! {
        got = exchange => got,
        () = async { loop { swarm.select_next_some().await; } } => unreachable!(),
    }
}

/// Drives a node for a while. Nothing of a peer that is not allowed may reach it.
async fn hears_nobody(node: &mut Node, time: Duration) {
    let heard = timeout(time, async {
        loop {
            let event = node.net.events.recv().await.expect("the network runs");
            match event {
                Event::Message { .. } | Event::Fetch { .. } | Event::Connected { .. } => {
                    return event;
                }
                _ => {}
            }
        }
    });
    if let Ok(event) = heard.await {
        panic!("{event:?}");
    }
    assert!(node.net.rings.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_is_not_allowed_gets_the_manifest_and_nothing_else() {
    let mut one = member(1, &[], &[]).await;
    one.until("listening", |e| matches!(e, Event::Listening).then_some(())).await;
    one.net.handle.serve_notices(vec![b"a notice".as_slice().into()]);
    let target = one.net.handle.addresses()[0].clone();
    let mut run = vec![32, 0, 0, 0];
    run.extend(RUN.0);
    let framed = |text: &[u8]| [&[u8::try_from(text.len()).unwrap(), 0, 0, 0], text].concat();
    for (protocol, ask, answer) in [
        ("/intellect/manifest/1", run.clone(), framed(b"a manifest")),
        ("/intellect/notices/1", run.clone(), framed(b"a notice")),
        ("/intellect/ctl/1", run.clone(), Vec::new()),
        ("/intellect/fetch/2", run.clone(), Vec::new()),
        ("/intellect/ring/1", run.clone(), Vec::new()),
    ] {
        let got = soon(protocol, gets(target.clone(), protocol, ask)).await;
        assert_eq!(got, answer, "{protocol}");
    }
    hears_nobody(&mut one, Duration::from_secs(1)).await;
    // A node that takes the run for an open one sends all that it can.
    let mut stranger = Node::new(2, &[target]);
    stranger.net.handle.join(RUN, Vec::new()).await.unwrap();
    for second in 0..7_u8 {
        stranger.net.handle.gossip(Topic::Ctl, vec![second]).unwrap();
        stranger.net.handle.knock(vec![second]);
        one.net.handle.gossip(Topic::Ctl, vec![100 + second]).unwrap();
        one.net.handle.knock(vec![100 + second]);
        hears_nobody(&mut one, Duration::from_millis(500)).await;
        hears_nobody(&mut stranger, Duration::from_millis(500)).await;
    }
    // As soon as it is allowed all of that works, and it ends when it no longer is.
    let id = stranger.id;
    one.net.handle.allow([id].into());
    one.linked(1).await;
    stranger.linked(1).await;
    one.net.handle.gossip(Topic::Ctl, b"to all".to_vec()).unwrap();
    stranger.hears(b"to all").await;
    one.net.handle.allow(HashSet::new());
    one.loses(id).await;
    hears_nobody(&mut one, Duration::from_secs(2)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_without_a_request_is_disconnected_and_one_with_a_request_is_heard() {
    let mut one = member(1, &[], &[]).await;
    one.until("listening", |e| matches!(e, Event::Listening).then_some(())).await;
    let target = one.net.handle.addresses()[0].clone();
    let silent = misbehave(target.clone(), "/intellect/ctl/1", Vec::new());
    timeout(PENDING_MAX, silent).await.expect("it is still connected");

    // A peer that sends a request is allowed here by the test.
    let mut two = member(2, std::slice::from_ref(&target), &[one.id]).await;
    two.net.handle.set_admit_request(&Visit::Enter(None)).await.unwrap();
    let handle = one.net.handle.clone();
    let came = one.until_owned("a request", |event| match event {
        Event::AdmitRequest { from, request, reply } => {
            handle.allow([from].into());
            reply.send(welcome()).unwrap();
            Some((from, *request))
        }
        _ => None,
    });
    assert_eq!(came.await, (two.id, Visit::Enter(None)));
    let answer = two.until("an answer", |event| match event {
        Event::AdmitReply { peer, reply } => Some((*peer, reply.clone())),
        _ => None,
    });
    assert_eq!(answer.await, (one.id, welcome()));
    one.linked(1).await;
    one.net.handle.gossip(Topic::Ctl, b"to all".to_vec()).unwrap();
    two.hears(b"to all").await;

    // A request that cannot be read is a grave fault.
    let bad = misbehave(target, "/intellect/admit/1", vec![0xff; 64]);
    let bad = tokio::spawn(bad);
    let why = one.until("a fault", |event| match event {
        Event::Fault { why, .. } => Some(why.clone()),
        _ => None,
    });
    assert_eq!(why.await, "a visit that cannot be read");
    soon("being thrown out", bad).await.unwrap();
}

/// An organiser's tool is admitted nowhere, and reaches the members all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_does_not_join_finds_the_members_and_sends_them_a_request() {
    let entry = entry(121, "/ip4/127.0.0.1/tcp/0").await;
    let mut one = member(1, std::slice::from_ref(&entry.address), &[]).await;
    let mut tool = Node::new(2, std::slice::from_ref(&entry.address));
    tool.net.handle.seek(RUN, 8).await.unwrap();
    tool.net.handle.set_admit_request(&Visit::Ask).await.unwrap();
    one.until_owned("a request", |event| match event {
        Event::AdmitRequest { request, reply, .. } if *request == Visit::Ask => {
            reply.send(welcome()).unwrap();
            Some(())
        }
        _ => None,
    })
    .await;
    let answer = tool.until("an answer", |event| match event {
        Event::AdmitReply { peer, reply } => Some((*peer, reply.clone())),
        _ => None,
    });
    assert_eq!(answer.await, (one.id, welcome()));
    // It does not count as a peer of the run, and serves nothing of it.
    let other = Node::new(3, std::slice::from_ref(&tool.net.handle.addresses()[0]));
    let offers = other.net.handle.manifests(None, Offerers::Named).await;
    assert!(matches!(offers, Err(OfferError::Nothing(_))), "{offers:?}");
}
