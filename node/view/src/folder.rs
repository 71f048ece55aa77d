//! The page as a folder of files, which any web host can serve, also long after the run.
//!
//! Each file is written under another name and renamed, so that a reader finds a whole one.
//! Addresses of peers are left out, since anybody may read the files. The page itself is the same
//! as that of the web server; the attribute `data-still` tells its script to read `status.json` and
//! `history.json` instead of asking.

use std::{
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
};

use crate::{page, picture::Picture, record::Text, stage::Seen};

/// A folder that has the page, and what it shows.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// What an earlier program has left in it.
    earlier: Option<Picture>,
}

impl Folder {
    /// Makes the folder, if it is not there, and writes the page into it. Its status comes first: by
    /// that the next start knows the folder.
    ///
    /// # Errors
    /// If the folder or a file cannot be made, or the folder has files and no status of a run.
    pub fn open(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        let status = fs::File::open(path.join("status.json")).ok();
        let earlier = status.and_then(|file| serde_json::from_reader(bounded(file)).ok());
        if earlier.is_none() && !is_ours(path)? {
            return Err(io::Error::new(io::ErrorKind::DirectoryNotEmpty, NOT_EMPTY));
        }
        let folder = Self { path: path.to_owned(), earlier };
        if folder.earlier.is_none() {
            folder.replace("status.json", &page::status_of(&Picture::default())?)?;
        }
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
        self.path.join("events.jsonl")
    }

    /// The RunId in hex of the run that an earlier program has shown here.
    #[must_use]
    pub fn run(&self) -> Option<&str> {
        self.earlier.as_ref()?.run.id.as_ref().map(Text::as_str)
    }

    /// Writes what the page would show now: `status.json`, then `history.json`. A reader may see
    /// the two from different moments, never a part of one. What an earlier program has left stays
    /// until there is as much of its run. The caller keeps another run away, by [`Self::run`].
    ///
    /// # Errors
    /// If a file cannot be written; then the one before stays.
    pub fn write(&self, seen: &Seen) -> io::Result<()> {
        let picture = seen.picture.borrow().without_addresses();
        if self.earlier.as_ref().is_some_and(|earlier| has_less(&picture, earlier)) {
            return Ok(());
        }
        self.replace("status.json", &page::status_of(&picture)?)?;
        let past = seen.past.lock().columns(0, u64::MAX, POINTS);
        self.replace("history.json", &serde_json::to_string(&past)?)
    }

    /// Puts a file in the place of an earlier one at once. It is not flushed to the disk, so a
    /// power cut may leave an older or an empty file.
    fn replace(&self, name: &str, text: &str) -> io::Result<()> {
        let part = self.path.join(format!(".{name}.part"));
        fs::write(&part, text)?;
        fs::rename(part, self.path.join(name))
    }
}

/// Whether a folder is empty, or one of ours whose status was lost: a power cut can leave an empty
/// file, and a full disk only the beginning of the first one.
fn is_ours(path: &Path) -> io::Result<bool> {
    let page = fs::read_to_string(path.join("index.html")).unwrap_or_default();
    let begun = |name: &OsStr| name == "status.json" || name == ".status.json.part";
    let names = fs::read_dir(path)?.map(|entry| Ok(entry?.file_name()));
    let names = names.collect::<io::Result<Vec<_>>>()?;
    Ok(page.contains("<html data-still") || names.iter().all(|name| begun(name)))
}

/// A file to read, up to the size that no status of ours has.
fn bounded(file: fs::File) -> impl io::Read {
    io::BufReader::new(io::Read::take(file, STATUS_BYTES_MAX))
}

/// Whether a picture has no run yet, or fewer epochs of it.
fn has_less(picture: &Picture, earlier: &Picture) -> bool {
    picture.run.id.is_none() || picture.head.epoch < earlier.head.epoch
}

/// What is said of a folder that somebody else may need.
const NOT_EMPTY: &str = "it is not empty, and no earlier `watch --to` has written it: nothing is \
                         overwritten, name another folder";

/// Rows of the past in the folder: more than a chart has columns of pixels.
const POINTS: usize = 2_000;
/// A status has some hundred kilobytes with 200 members.
const STATUS_BYTES_MAX: u64 = 16 << 20;

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

    #[test]
    fn a_folder_never_goes_back_in_its_run() {
        let top = tempfile::tempdir().unwrap();
        // The epoch that the folder shows after a program has seen these epochs of a run.
        let show = |run: &str, epochs: u64| {
            let folder = Folder::open(top.path()).unwrap();
            let (mut stage, seen) = Stage::new(Source::default());
            for epoch in 1..=epochs {
                let line = format!(
                    r#"{{"event":"committed","attempt":1,"members":[],"weights":[],"state":"s","update":"u","tokens":1,"loss":1.5,"sync_ms":1,"sent_bytes":0,"received_bytes":0,"forkable_since":null,"peer":"me","run":"{run}","epoch":{epoch},"t_ms":9}}"#
                );
                stage.take(&Record::parse(line.as_bytes()).unwrap(), &line);
            }
            stage.publish();
            folder.write(&seen).unwrap();
            let status = fs::read(top.path().join("status.json")).unwrap();
            let status: serde_json::Value = serde_json::from_slice(&status).unwrap();
            status["head"]["epoch"].as_u64().unwrap()
        };
        let starts = [0, 3, 0, 2, 4];
        assert_eq!(starts.map(|epochs| show("r", epochs)), [0, 3, 3, 3, 4]);
        assert_eq!(Folder::open(top.path()).unwrap().run(), Some("r"));
    }

    #[test]
    fn a_folder_of_somebody_else_is_refused_and_one_that_failed_early_is_not() {
        let top = tempfile::tempdir().unwrap();
        for _ in ["a first start that ends before the run is known", "the next one"] {
            assert_eq!(Folder::open(top.path()).unwrap().run(), None);
        }
        fs::remove_file(top.path().join("status.json")).unwrap();
        fs::write(top.path().join("index.html"), "mine").unwrap();
        let said = Folder::open(top.path()).unwrap_err().to_string();
        assert!(said.contains("it is not empty") && said.contains("another folder"), "{said}");
        assert_eq!(fs::read_to_string(top.path().join("index.html")).unwrap(), "mine");
    }
}
