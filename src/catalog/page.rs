//! One client's view of a list: rendered once, served as slices.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{Bytes, BytesMut};

use crate::mcp::Span;

/// What one client sees of a list.
#[derive(Debug)]
pub struct View {
    /// All entries as one JSON array.
    array: Bytes,
    /// Where each entry stands in it.
    entries: Vec<Span>,
    /// Which entries of the snapshot are in it, by their place.
    visible: Vec<bool>,
    /// Changes with the content; part of every cursor.
    digest: String,
}

/// A cursor that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CursorError {
    /// It was not made here.
    #[error("unknown cursor; start again without one")]
    Unknown,
    /// The list has changed since.
    #[error("the list has changed since this cursor was made; start again without one")]
    Stale,
}

impl View {
    /// Renders the entries for which `visible` says so.
    #[must_use]
    pub fn render<'a>(texts: impl Iterator<Item = &'a Bytes>, visible: Vec<bool>) -> Self {
        let mut array = BytesMut::from(b"[".as_slice());
        let mut entries = Vec::new();
        let shown = texts.zip(&visible).filter_map(|(text, visible)| visible.then_some(text));
        for text in shown {
            if !entries.is_empty() {
                array.extend_from_slice(b",");
            }
            let start = array.len();
            array.extend_from_slice(text);
            entries.push(start..array.len());
        }
        array.extend_from_slice(b"]");
        let hash = digest::digest(&digest::SHA256, &array);
        let digest = URL_SAFE_NO_PAD.encode(hash.as_ref().get(..9).unwrap_or_default());
        Self { array: array.freeze(), entries, visible, digest }
    }

    /// Whether the entry at this place of the snapshot is in this view.
    #[must_use]
    pub fn shows(&self, index: usize) -> bool {
        self.visible.get(index) == Some(&true)
    }

    /// Differs as soon as the content does.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// How many entries it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The page at `cursor` (the first without one) of at most `size` entries (all without it), as a JSON
    /// array, and the cursor of the next one.
    ///
    /// # Errors
    /// If the cursor is none of this view's.
    pub fn page(
        &self,
        cursor: Option<&str>,
        size: Option<usize>,
    ) -> Result<(Bytes, Option<String>), CursorError> {
        let start = match cursor {
            Some(cursor) => self.offset_of(cursor)?,
            None => 0,
        };
        let end = size.map_or(self.len(), |size| self.len().min(start.saturating_add(size.max(1))));
        if start == 0 && end == self.len() {
            return Ok((self.array.clone(), None));
        }
        let mut page = BytesMut::from(b"[".as_slice());
        if let (Some(first), Some(last)) = (self.entries.get(start), self.entries.get(end.saturating_sub(1)))
        {
            page.extend_from_slice(self.array.get(first.start..last.end).unwrap_or_default());
        }
        page.extend_from_slice(b"]");
        let next = (end < self.len()).then(|| URL_SAFE_NO_PAD.encode(format!("{end}.{}", self.digest)));
        Ok((page.freeze(), next))
    }

    fn offset_of(&self, cursor: &str) -> Result<usize, CursorError> {
        let decoded = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| CursorError::Unknown)?;
        let decoded = String::from_utf8(decoded).map_err(|_| CursorError::Unknown)?;
        let (offset, digest) = decoded.split_once('.').ok_or(CursorError::Unknown)?;
        let offset: usize = offset.parse().map_err(|_| CursorError::Unknown)?;
        if digest != self.digest {
            return Err(CursorError::Stale);
        }
        if offset == 0 || offset >= self.len() {
            return Err(CursorError::Unknown);
        }
        Ok(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(count: usize) -> View {
        let texts: Vec<Bytes> = (0..count).map(|index| Bytes::from(index.to_string())).collect();
        View::render(texts.iter(), vec![true; count])
    }

    #[test]
    fn walking_the_pages_gives_each_entry_once() {
        for (count, size) in [(0, 3), (1, 1), (7, 3), (6, 3), (101, 50)] {
            let view = view(count);
            let (mut cursor, mut seen) = (None::<String>, Vec::new());
            loop {
                let (page, next) = view.page(cursor.as_deref(), Some(size)).unwrap();
                seen.extend(serde_json::from_slice::<Vec<usize>>(&page).unwrap());
                match next {
                    Some(next) => cursor = Some(next),
                    None => break,
                }
            }
            assert_eq!(seen, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn foreign_and_stale_cursors_are_refused() {
        let view = view(5);
        for bad in ["", "x", "äöü", "AAAA"] {
            assert_eq!(view.page(Some(bad), Some(2)).unwrap_err(), CursorError::Unknown, "{bad}");
        }
        let (_, next) = View::render(["0", "1", "2", "3", "4", "5"].map(Bytes::from).iter(), vec![true; 6])
            .page(None, Some(2))
            .unwrap();
        assert_eq!(view.page(next.as_deref(), Some(2)).unwrap_err(), CursorError::Stale);
    }

    #[test]
    fn hidden_entries_are_not_rendered() {
        let texts: Vec<Bytes> = ["1", "2", "3"].into_iter().map(Bytes::from).collect();
        let view = View::render(texts.iter(), vec![true, false, true]);
        assert_eq!(view.page(None, None).unwrap().0, b"[1,3]".as_slice());
        assert!(view.shows(0) && !view.shows(1) && !view.shows(9));
    }
}
