//! URIs: the tag that tells equal URIs of two upstreams apart.

/// Stands between a URI and the name of its upstream.
const TAG: &str = "#@";

/// The URI under a tag: scheme and path unchanged.
pub(super) fn tagged(uri: &str, upstream: &str) -> String {
    format!("{uri}{TAG}{upstream}")
}

/// The URI and the name of the upstream, if there is a tag.
#[must_use]
pub fn split_tag(uri: &str) -> Option<(&str, &str)> {
    uri.rsplit_once(TAG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_comes_off_again() {
        let uri = tagged("config://app?x=1#y", "files");
        assert_eq!(uri, "config://app?x=1#y#@files");
        assert_eq!(split_tag(&uri), Some(("config://app?x=1#y", "files")));
        assert_eq!(split_tag("config://app#y"), None);
    }
}
