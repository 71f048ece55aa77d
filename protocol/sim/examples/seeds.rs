//! seeds PEERS CLASS A..B [THREADS]
use intellect_protocol_sim::{self as sim, Config, Faults};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let peers: usize = a[1].parse().unwrap();
    let faults = Faults::ALL.into_iter().find(|f| f.to_string() == a[2]).unwrap();
    let (x, y) = a[3].split_once("..").unwrap();
    let (x, y): (u64, u64) = (x.parse().unwrap(), y.parse().unwrap());
    let threads: u64 = a.get(4).map_or(2, |t| t.parse().unwrap());
    let bad: usize = std::thread::scope(|s| {
        let hs: Vec<_> = (0..threads)
            .map(|t| {
                s.spawn(move || {
                    let mut bad = 0;
                    for seed in (x..y).filter(|s| s % threads == t) {
                        let c = Config { peers, epochs: 8, seed, faults, without: None };
                        if let Err(f) = sim::run(&c) {
                            bad += 1;
                            println!(
                                "seed {seed}: {}",
                                f.to_string().chars().take(1500).collect::<String>()
                            );
                        }
                    }
                    bad
                })
            })
            .collect();
        hs.into_iter().map(|h| h.join().unwrap()).sum()
    });
    println!("{peers} {faults} {x}..{y}: {bad} of {}", y - x);
}
