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
}

impl Rotating {
    /// Opens the file, or makes it; what is in it stays.
    ///
    /// # Errors
    /// If that is not possible.
    pub(super) fn open(path: &Path, most: u64, keep: usize) -> io::Result<Self> {
        let file = append(path)?;
        let size = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, size, most, keep })
    }

    /// Puts the file aside, and begins another one.
    fn rotate(&mut self) -> io::Result<()> {
        for number in (1..self.keep).rev() {
            // There may be fewer.
            let _none = std::fs::rename(aside(&self.path, number), aside(&self.path, number + 1));
        }
        match self.keep {
            0 => std::fs::remove_file(&self.path)?,
            _ => std::fs::rename(&self.path, aside(&self.path, 1))?,
        }
        self.file = append(&self.path)?;
        self.size = 0;
        Ok(())
    }
}

impl Write for Rotating {
    /// Takes all of it: lines that come together stay together, so a file may be larger by that.
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        if self.size >= self.most {
            self.rotate()?;
        }
        self.file.write_all(lines)?;
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
}
