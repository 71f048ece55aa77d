//! The page as a folder of files, which any web host can serve, also long after the run.
//!
//! Each file is written under another name and renamed, so that a reader finds a whole one.
//! Addresses of peers are left out, since anybody may read the files. The page itself is the same
//! as that of the web server; the attribute `data-still` tells its script to read `status.json` and
//! `history.json` instead of asking.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{page, stage::Seen};

/// A folder that has the page, and what it shows.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes the folder, if it is not there, and writes the page into it.
    ///
    /// # Errors
    /// If the folder or a file cannot be made.
    pub fn open(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        let folder = Self(path.to_owned());
        for (name, _, text) in page::ASSETS {
            let (name, text) = match name {
                "/" => ("index.html", text.replacen("<html", "<html data-still", 1)),
                name => (name.trim_start_matches('/'), text.to_owned()),
            };
            folder.replace(name, &text)?;
        }
        Ok(folder)
    }

    /// The path for the lines of events. The caller writes them; this module does not.
    #[must_use]
    pub fn events(&self) -> PathBuf {
        self.0.join("events.jsonl")
    }

    /// Writes what the page would show now: `status.json`, then `history.json`. A reader may see
    /// the two from different moments, never a part of one.
    ///
    /// # Errors
    /// If a file cannot be written; then the one before stays.
    pub fn write(&self, seen: &Seen) -> io::Result<()> {
        let picture = seen.picture.borrow().without_addresses();
        self.replace("status.json", &page::status_of(&picture)?)?;
        let past = seen.past.lock().columns(0, u64::MAX, POINTS);
        self.replace("history.json", &serde_json::to_string(&past)?)
    }

    /// Puts a file in the place of an earlier one at once. It is not flushed to the disk, so a
    /// power cut may leave an older or an empty file.
    fn replace(&self, name: &str, text: &str) -> io::Result<()> {
        let part = self.0.join(format!(".{name}.part"));
        fs::write(&part, text)?;
        fs::rename(part, self.0.join(name))
    }
}

/// Rows of the past in the folder: more than a chart has columns of pixels.
const POINTS: usize = 2_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{picture::Source, record::Record, stage::Stage};

    #[test]
    fn a_folder_has_all_that_its_page_asks_for_and_no_address() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("deep/run");
        let folder = Folder::open(&path).unwrap();
        let (mut stage, seen) = Stage::new(Source::default());
        let line = r#"{"event":"listening","addresses":["/ip4/10.1.2.3/tcp/1"],"t_ms":2,"peer":"me","run":"r"}"#;
        stage.take(&Record::parse(line.as_bytes()).unwrap(), line);
        stage.publish();
        folder.write(&seen).unwrap();
        let read = |name: &str| fs::read_to_string(path.join(name)).unwrap();
        let status: serde_json::Value = serde_json::from_str(&read("status.json")).unwrap();
        assert_eq!((&status["format"], &status["head"]["epoch"]), (&1.into(), &0.into()));
        assert!(!read("status.json").contains("10.1.2.3"));
        assert!(read("history.json").contains("\"epoch\":[]"));
        let index = read("index.html");
        assert!(index.contains("<html data-still"));
        for asked in
            index.split(['"', '\'']).filter(|text| text.ends_with(".js") || text.ends_with(".css"))
        {
            assert!(!asked.starts_with('/') && !read(asked).is_empty(), "{asked}");
        }
        assert!(read("page.js").contains("\"./chart.js\""));
        let parts = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(parts.into_iter().all(|name| !name.to_string_lossy().ends_with(".part")));
    }
}
