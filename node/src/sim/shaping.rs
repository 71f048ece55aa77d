//! Bad links without the rights of root: every process shapes its own streams.
//!
//! Each process listens on a loopback address of its own, so a dialler knows which process a stream leads to. It reads
//! the properties of its link from a file (`intellect_bootstrap::shaper`). A process that accepts a stream does not
//! know the other end, so in a cut the dialler holds back both ways.

use std::{
    io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use intellect_bootstrap::shaper::Line;

use super::links::{Change, Links};

/// The state of all links, and the files that describe it to the processes.
#[derive(Debug)]
pub(super) struct Shaping {
    links: Mutex<Links>,
    /// The files of the processes, by number.
    files: Vec<PathBuf>,
}

impl Shaping {
    /// Perfect links for `count` processes, described by files in `folder`.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(super) fn open(count: usize, folder: &Path) -> io::Result<Self> {
        let files = (0..count).map(|index| folder.join(format!("line-{index}"))).collect();
        let shaping = Self { links: Mutex::new(Links::new(count)), files };
        shaping.apply(&Change::Heal)?;
        Ok(shaping)
    }

    /// Applies a change of the links from now on.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(super) fn apply(&self, change: &Change) -> io::Result<()> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.apply(change);
        let lines = self.files.iter().enumerate();
        lines.into_iter().try_for_each(|(index, file)| self.line(&links, index).write(file))
    }

    /// The file that process `index` reads.
    pub(super) fn file(&self, index: usize) -> Option<&Path> {
        self.files.get(index).map(PathBuf::as_path)
    }

    /// The line of one process. Peers that it cannot reach are mute, and peers that cannot reach it
    /// are deaf.
    fn line(&self, links: &Links, index: usize) -> Line {
        let others = || (0..self.files.len()).filter(|other| *other != index);
        let (rate, delay, loss) = links.access(index);
        Line {
            rate,
            delay,
            loss,
            mute: others()
                .filter(|to| !links.join(index, *to))
                .map(|to| address(to).into())
                .collect(),
            deaf: others()
                .filter(|from| !links.join(*from, index))
                .map(|from| address(from).into())
                .collect(),
        }
    }
}

/// The address of a process: the first one has 127.77.0.1.
pub(super) fn address(index: usize) -> Ipv4Addr {
    let [high, low] = u16::try_from(index + 1).unwrap_or(u16::MAX).to_be_bytes();
    Ipv4Addr::new(127, 77, high, low)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::sim::links;

    #[test]
    fn every_process_reads_its_own_side_of_the_links() {
        let folder = tempfile::tempdir().unwrap();
        let shaping = Shaping::open(3, folder.path()).unwrap();
        let read = |index| -> Line {
            let file = shaping.file(index).unwrap();
            fs::read_to_string(file).unwrap().parse().unwrap()
        };
        assert_eq!(read(2), Line::default());
        let slow = links::AccessLink { rate: Some(24_000), ..links::AccessLink::default() };
        shaping.apply(&Change::Access { peer: 1, link: slow }).unwrap();
        shaping.apply(&Change::BlackHole { from: 0, to: 1, both: false }).unwrap();
        let [zero, one, two] = [0, 1, 2].map(|index| address(index).into());
        assert_eq!((read(0).mute, read(0).deaf), ([one].into(), [].into()));
        assert_eq!((read(1).mute, read(1).deaf), ([].into(), [zero].into()));
        assert_eq!((read(0).rate, read(1).rate), (0, 24_000));
        shaping.apply(&Change::Cut([2].into())).unwrap();
        assert_eq!((read(2).mute, read(2).deaf), ([zero, one].into(), [zero, one].into()));
        assert_eq!(read(0).deaf, [two].into());
        shaping.apply(&Change::Heal).unwrap();
        assert_eq!(read(1), Line { rate: 24_000, ..Line::default() });
        assert!(shaping.file(3).is_none());
    }
}
