//! JSON as text: where a value stands, byte for byte. Knows nothing of numbers or strings beyond their ends.

/// The members of an object as (key, value), both as they are written. Empty for anything else.
pub fn members(object: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut at = Scan { text: object, at: 0 };
    at.space();
    if !at.eat(b'{') {
        return found;
    }
    loop {
        at.space();
        if at.eat(b'}') || at.at >= object.len() {
            return found;
        }
        let key = at.value();
        at.space();
        at.eat(b':');
        at.space();
        let value = at.value();
        found.push((key, value));
        at.space();
        at.eat(b',');
    }
}

/// The elements of an array as they are written. Empty for anything else.
pub fn elements(array: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut at = Scan { text: array, at: 0 };
    at.space();
    if !at.eat(b'[') {
        return found;
    }
    loop {
        at.space();
        if at.eat(b']') || at.at >= array.len() {
            return found;
        }
        found.push(at.value());
        at.space();
        at.eat(b',');
    }
}

/// The value at `path` as it is written.
pub fn get<'a>(text: &'a str, path: &[&str]) -> Option<&'a str> {
    path.iter().try_fold(text, |inner, key| {
        members(inner).into_iter().find(|(name, _)| is_key(name, key)).map(|(_, value)| value)
    })
}

/// The string at `path`, decoded.
pub fn string(text: &str, path: &[&str]) -> Option<String> {
    serde_json::from_str(get(text, path)?).ok()
}

/// The text with the value at `path` replaced, all else as it is. `path` must be there.
pub fn replaced(text: &str, path: &[&str], with: &str) -> String {
    let value = get(text, path).unwrap_or_else(|| panic!("no {path:?} in {text}"));
    let start = value.as_ptr() as usize - text.as_ptr() as usize;
    format!("{}{with}{}", &text[..start], &text[start + value.len()..])
}

/// The members of the object at `path`, without those named; empty if there is none.
pub fn members_without<'a>(text: &'a str, path: &[&str], without: &[&str]) -> Vec<(&'a str, &'a str)> {
    let object = get(text, path).unwrap_or("{}");
    let is_kept = |name: &str| !without.iter().any(|key| is_key(name, key));
    members(object).into_iter().filter(|(name, _)| is_kept(name)).collect()
}

/// A JSON string.
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn is_key(written: &str, key: &str) -> bool {
    written.trim_matches('"') == key || serde_json::from_str::<String>(written).is_ok_and(|name| name == key)
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        let is_there = self.peek() == Some(byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn value(&mut self) -> &'a str {
        let start = self.at;
        let mut depth = 0_usize;
        loop {
            match self.peek() {
                Some(b'"') => self.skip_string(),
                Some(b'{' | b'[') => {
                    depth += 1;
                    self.at += 1;
                }
                Some(b'}' | b']') if depth > 0 => {
                    depth -= 1;
                    self.at += 1;
                }
                Some(b',' | b':' | b'}' | b']') | None if depth == 0 => break,
                Some(byte) if depth == 0 && byte.is_ascii_whitespace() => break,
                Some(_) => self.at += 1,
                None => break,
            }
            let is_whole = matches!(self.text.as_bytes()[self.at - 1], b'"' | b'}' | b']');
            if depth == 0 && is_whole {
                break;
            }
        }
        &self.text[start..self.at]
    }

    fn skip_string(&mut self) {
        self.at += 1;
        while let Some(next) = memchr::memchr2(b'"', b'\\', &self.text.as_bytes()[self.at..]) {
            let is_end = self.text.as_bytes()[self.at + next] == b'"';
            self.at += next + if is_end { 1 } else { 2 };
            if is_end {
                return;
            }
        }
        self.at = self.text.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_where_the_scan_says() {
        let text = r#" { "a" : 1e2 , "b\u0063":{"x":[1, "}\"]" ]} ,"n":null,"":"" } "#;
        assert_eq!(get(text, &["a"]), Some("1e2"));
        assert_eq!(get(text, &["bc", "x"]), Some(r#"[1, "}\"]" ]"#));
        assert_eq!(elements(get(text, &["bc", "x"]).unwrap()), ["1", r#""}\"]""#]);
        assert_eq!(get(text, &["n"]), Some("null"));
        assert_eq!(get(text, &[""]), Some("\"\""));
        assert_eq!(replaced(r#"{"a": {"b":1 } }"#, &["a", "b"], "22"), r#"{"a": {"b":22 } }"#);
    }
}
