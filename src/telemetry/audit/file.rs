//! A file that is put aside once it is full.
//!
//! Must not know: what is in it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file that begins anew once it has so many bytes; the full one is kept as `.1`, the one before as `.2`, …
#[derive(Debug)]
pub(super) struct Rotating {
    path: PathBuf,
    file: File,
    size: u64,
    most: u64,
    keep: usize,
    /// Something could be written in part only.
    is_torn: bool,
}

impl Rotating {
    /// Opens the file, or makes it; what is in it stays.
    ///
    /// # Errors
    /// If that is not possible.
    pub(super) fn open(path: &Path, most: u64, keep: usize) -> io::Result<Self> {
        let file = append(path)?;
        let size = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, size, most, keep, is_torn: false })
    }

    /// Puts the file aside, and begins another one. What went wrong half-way is gone on with the next time.
    fn rotate(&mut self) -> io::Result<()> {
        // Else it was put aside before, by us or by somebody else, and what was kept must not move on once more.
        if self.path.try_exists()? {
            self.put_aside()?;
        }
        self.file = append(&self.path)?;
        (self.size, self.is_torn) = (self.file.metadata()?.len(), false);
        Ok(())
    }

    fn put_aside(&self) -> io::Result<()> {
        for number in (1..self.keep).rev() {
            // There may be fewer.
            let _none = std::fs::rename(aside(&self.path, number), aside(&self.path, number + 1));
        }
        match self.keep {
            0 => std::fs::remove_file(&self.path),
            _ => std::fs::rename(&self.path, aside(&self.path, 1)),
        }
    }

    /// Writes all of it, on a line of its own where the one before has no end.
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.is_torn {
            self.file.write_all(b"\n")?;
        }
        self.file.write_all(lines)
    }
}

impl Write for Rotating {
    /// Takes all of it: lines that come together stay together, so a file may be larger by that.
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        if self.size >= self.most {
            self.rotate()?;
        }
        let appended = self.append(lines);
        self.is_torn = appended.is_err();
        appended?;
        self.size = self.size.saturating_add(lines.len() as u64);
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn aside(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

fn append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &Path) -> Option<String> {
        std::fs::read_to_string(path).ok()
    }

    #[test]
    fn a_full_file_is_put_aside_and_the_oldest_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let mut file = Rotating::open(&path, 4, 2).unwrap();
        for line in ["one\n", "two\n", "three\n", "four\n"] {
            file.write_all(line.as_bytes()).unwrap();
        }
        let kept = [path.clone(), aside(&path, 1), aside(&path, 2), aside(&path, 3)].map(|path| text(&path));
        assert_eq!(kept, [Some("four\n".into()), Some("three\n".into()), Some("two\n".into()), None]);
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap());
        assert_eq!(mode & 0o777, 0o600);
        let mut again = Rotating::open(&path, 100, 2).unwrap();
        again.write_all(b"five\n").unwrap();
        assert_eq!(text(&path).as_deref(), Some("four\nfive\n"), "what is there stays");
        let mut none = Rotating::open(&folder.path().join("other"), 1, 0).unwrap();
        none.write_all(b"a\n").unwrap();
        none.write_all(b"b\n").unwrap();
        assert_eq!(text(&folder.path().join("other")).as_deref(), Some("b\n"));
    }

    #[test]
    fn what_went_wrong_half_way_ends_with_its_cause_and_costs_nothing_that_was_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let mut file = Rotating::open(&path, 4, 3).unwrap();
        for line in ["one\n", "two\n"] {
            file.write_all(line.as_bytes()).unwrap();
        }
        // As if it had been put aside, and another could not be opened.
        file.put_aside().unwrap();
        std::os::unix::fs::symlink("nowhere/nothing", &path).unwrap();
        for _ in 0..3 {
            assert!(file.write_all(b"lost\n").is_err());
        }
        std::fs::remove_file(&path).unwrap();
        file.write_all(b"three\n").unwrap();
        let kept = [path.clone(), aside(&path, 1), aside(&path, 2), aside(&path, 3)].map(|path| text(&path));
        assert_eq!(kept, [Some("three\n".into()), Some("two\n".into()), Some("one\n".into()), None]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_line_after_one_that_could_not_be_written_whole_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let mut file = Rotating::open(&path, 100, 0).unwrap();
        file.file.write_all(b"{\"half").unwrap();
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let good = std::mem::replace(&mut file.file, full);
        assert!(file.write_all(b"lost\n").is_err());
        file.file = good;
        file.write_all(b"whole\n").unwrap();
        file.write_all(b"next\n").unwrap();
        assert_eq!(text(&path).as_deref(), Some("{\"half\nwhole\nnext\n"));
    }
}
