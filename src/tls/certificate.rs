//! Whose a certificate is: the names in it. RFC 5280, 4.1.2.6 and 4.2.1.6.
//!
//! Only read after the certificate has been verified. Reads DER as far as it must; what it does not understand has
//! no names.

/// The most names of one certificate that are looked at.
const NAMES: usize = 64;
/// The longest name, in bytes.
const LONGEST: usize = 1_024;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OID: u8 = 0x06;
const OCTETS: u8 = 0x04;
const BOOLEAN: u8 = 0x01;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// `id-ce-subjectAltName`, 2.5.29.17.
const ALTERNATIVE: &[u8] = &[0x55, 0x1d, 0x11];
/// `id-at-commonName`, 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// Kinds of alternative names, and how each is written here.
const KINDS: [(u8, &str); 3] = [(0x81, "email:"), (0x82, "DNS:"), (0x86, "URI:")];

/// The names of a certificate, each with its kind: `DNS:host`, `URI:spiffe://…`, `email:…`, `CN:…`.
pub(crate) fn names(certificate: &[u8]) -> Vec<String> {
    read(certificate).unwrap_or_default()
}

fn read(certificate: &[u8]) -> Option<Vec<String>> {
    let mut certificate = Der(Der(certificate).take(SEQUENCE)?);
    let mut body = Der(certificate.take(SEQUENCE)?);
    body.take_if(VERSION);
    // The number, how it is signed, who signed it, from when until when.
    (0..4).try_for_each(|_| body.any().map(drop))?;
    let subject = body.take(SEQUENCE)?;
    let mut found = Vec::new();
    common_names(subject, &mut found);
    // The key, and perhaps two numbers that nobody uses.
    body.any()?;
    while let Some((tag, value)) = body.any() {
        if tag == EXTENSIONS {
            alternative_names(value, &mut found);
        }
    }
    found.truncate(NAMES);
    Some(found)
}

fn common_names(subject: &[u8], found: &mut Vec<String>) {
    let mut subject = Der(subject);
    while let Some(set) = subject.take(SET) {
        let mut set = Der(set);
        while let Some(pair) = set.take(SEQUENCE) {
            let mut pair = Der(pair);
            if pair.take(OID) == Some(COMMON_NAME)
                && let Some((_, value)) = pair.any()
            {
                push("CN:", value, found);
            }
        }
    }
}

fn alternative_names(extensions: &[u8], found: &mut Vec<String>) {
    let Some(list) = Der(extensions).take(SEQUENCE) else { return };
    let mut list = Der(list);
    while let Some(extension) = list.take(SEQUENCE) {
        let mut extension = Der(extension);
        let is_names = extension.take(OID) == Some(ALTERNATIVE);
        extension.take_if(BOOLEAN);
        let names = extension.take(OCTETS).filter(|_| is_names).and_then(|octets| Der(octets).take(SEQUENCE));
        let mut names = Der(names.unwrap_or_default());
        while let Some((tag, value)) = names.any() {
            if let Some((_, kind)) = KINDS.iter().find(|(kind, _)| *kind == tag) {
                push(kind, value, found);
            }
        }
    }
}

/// Takes a name that is a text in one line; a name that could be taken for another is none.
fn push(kind: &str, value: &[u8], found: &mut Vec<String>) {
    let text = std::str::from_utf8(value).ok();
    let is_fit = |text: &&str| {
        !text.is_empty() && text.len() <= LONGEST && !text.chars().any(|c| c.is_control() || c == '\u{feff}')
    };
    found.extend(text.filter(is_fit).map(|text| format!("{kind}{text}")));
}

/// DER that is left to read.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next value, and its tag.
    fn any(&mut self) -> Option<(u8, &'a [u8])> {
        let (tag, rest) = self.0.split_first()?;
        let (first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(*first), rest),
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, value))
    }

    /// The next value, if it has this tag; else the end.
    fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.any().filter(|(found, _)| *found == tag).map(|(_, value)| value)
    }

    /// Skips the next value if it has this tag.
    fn take_if(&mut self, tag: u8) {
        if self.0.first() == Some(&tag) {
            self.any();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn certificate(common: &[&str], others: Vec<SanType>) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for name in common {
            params.distinguished_name.push(DnType::CommonName, *name);
        }
        params.distinguished_name.push(DnType::OrganizationName, "CN:not-this");
        params.subject_alt_names = others;
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn names_are_told_by_their_kind() {
        let uri = SanType::URI("spiffe://acme.example/ci".try_into().unwrap());
        let dns = SanType::DnsName("ci.acme.example".try_into().unwrap());
        let email = SanType::Rfc822Name("ci@acme.example".try_into().unwrap());
        let address = SanType::IpAddress([127, 0, 0, 1].into());
        let found = names(&certificate(&["ci"], vec![uri, dns, address, email]));
        assert_eq!(
            found,
            ["CN:ci", "URI:spiffe://acme.example/ci", "DNS:ci.acme.example", "email:ci@acme.example"]
        );
        assert!(names(&certificate(&[], vec![])).is_empty());
        assert!(
            names(&certificate(&["a\nCN:b", ""], vec![])).is_empty(),
            "what is no name in one line is none"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_have_names_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            names(&bytes);
        }

        #[test]
        fn a_damaged_certificate_is_read_or_not(place in 0..400_usize, byte in any::<u8>()) {
            let mut bytes = certificate(&["ci"], vec![]);
            if let Some(damaged) = bytes.get_mut(place) {
                *damaged = byte;
            }
            bytes.truncate(place * 2);
            names(&bytes);
        }
    }
}
