//! A laptop: it trains at home, where the router forwards a port to it, and is then opened in a café.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{
    PATIENCE, Plan, Street,
    lab::{self, Kind},
    now_ms, sum_of,
};
use crate::story;

const PLAN: Plan = Plan {
    name: "two public, a laptop",
    kinds: &[Kind::Public, Kind::Public, Kind::Upnp],
    together: &[0, 1, 2],
};
/// Which of these machines is the laptop.
const LAPTOP: usize = 2;

#[test]
fn a_laptop_that_is_opened_in_a_cafe_says_so_and_trains_on() {
    if let Some(why) = lab::missing() {
        println!("skipped: no home routers here: {why}");
        return;
    }
    if !lab::has_upnp() {
        println!("skipped: miniupnpd is not installed");
        return;
    }
    let story = story();
    story.manifest("run.toml", &["epoch.amount=1", "train.batch=1"]).unwrap();
    let mut street = Street::open(&story, 0, PLAN);
    // The bridge of a container engine stays wherever the laptop goes.
    street.lab.bridge("h2", "docker0", "172.17.0.1/16").unwrap();
    let says_open = |event: &Value| event["event"] == "reachability" && event["state"] == "open";
    street.nodes[LAPTOP].wait_for(PATIENCE, says_open).unwrap();
    wait_for_a_sum_of_all(&street, 0);

    street.lab.moves("h2", 9).unwrap();
    let moved_ms = now_ms();
    let says_moved = |event: &Value| {
        event["event"] == "reachability"
            && event["t_ms"].as_u64() >= Some(moved_ms)
            && (event["state"] == "relayed" || event["state"] == "closed")
    };
    street.nodes[LAPTOP].wait_for(PATIENCE, says_moved).unwrap();
    wait_for_a_sum_of_all(&street, now_ms());
}

/// Waits until the laptop has committed an epoch of all three that ended after this time.
fn wait_for_a_sum_of_all(street: &Street, after_ms: u64) {
    let start = Instant::now();
    let is_of_all = |event: &Value| {
        event["event"] == "committed"
            && event["t_ms"].as_u64() >= Some(after_ms)
            && sum_of(event, &street.names).len() == street.names.len()
    };
    while !street.nodes[LAPTOP].events().unwrap().iter().any(is_of_all) {
        let waited = start.elapsed();
        assert!(waited < PATIENCE, "no sum of all:\n{}", street.nodes[LAPTOP].said());
        std::thread::sleep(Duration::from_millis(500));
    }
}
