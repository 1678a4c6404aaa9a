//! A file or a list in flow style, like JSON, and the places where its list can be changed.

/// A part of a text in flow style.
pub(super) struct FlowText<'a> {
    text: &'a str,
    /// Where the list begins and ends, with its brackets, if there is one.
    list: Option<(usize, usize)>,
    /// Where the members of the object begin, if it is a whole file.
    object: Option<usize>,
}

impl<'a> FlowText<'a> {
    /// Returns a file that is JSON.
    pub(super) fn of_file(text: &'a str) -> Option<Self> {
        let start = text.find(|first: char| !first.is_whitespace() && first != '\u{feff}')?;
        text.get(start..)?.starts_with('{').then(|| Self {
            text,
            list: member(text, start, "jwt").and_then(|at| span(text, at)),
            object: Some(start + 1),
        })
    }

    /// Returns the list that begins at an offset, after blanks.
    pub(super) fn of_list(text: &'a str, offset: usize) -> Option<Self> {
        let rest = text.get(offset..)?;
        let start = offset + (rest.len() - rest.trim_start().len());
        text.get(start..)?.starts_with('[').then(|| Self {
            text,
            list: span(text, start),
            object: None,
        })
    }

    /// Returns candidates for the text with one more item in its list.
    pub(super) fn with_item(&self, item: &str) -> Vec<String> {
        let Some((start, _)) = self.list else {
            let mut candidates = self.with_member("jwt", &format!("[{item}]"));
            candidates.extend(self.replacing_null(item));
            return candidates;
        };
        match items(self.text, start).last() {
            // After the last item, before a comma that may follow it.
            Some((_, last)) => vec![self.spliced(*last, *last, &format!(", {item}"))],
            None => vec![self.spliced(start + 1, start + 1, item)],
        }
    }

    /// Returns candidates for the text with another item at this index.
    pub(super) fn replacing_item(&self, index: usize, item: &str) -> Vec<String> {
        let Some((start, _)) = self.list else {
            return Vec::new();
        };
        items(self.text, start)
            .get(index)
            .map(|(start, end)| self.spliced(*start, *end, item))
            .into_iter()
            .collect()
    }

    /// Returns candidates for a file with one more member.
    pub(super) fn with_member(&self, name: &str, value: &str) -> Vec<String> {
        let Some(start) = self.object else {
            return Vec::new();
        };
        vec![self.spliced(start, start, &format!("\"{name}\":{value},"))]
    }

    /// Returns the file with a list instead of `"jwt": null`.
    fn replacing_null(&self, item: &str) -> Option<String> {
        let at = member(self.text, self.object?.checked_sub(1)?, "jwt")?;
        let is_null = self.text.get(at..)?.starts_with("null");
        is_null.then(|| self.spliced(at, at + "null".len(), &format!("[{item}]")))
    }

    fn spliced(&self, start: usize, end: usize, new: &str) -> String {
        let head = self.text.get(..start).unwrap_or_default();
        let tail = self.text.get(end..).unwrap_or_default();
        format!("{head}{new}{tail}")
    }
}

/// Returns the offsets of a text's structure: each with its byte, outside of quoted texts and
/// comments.
fn structure(text: &str, from: usize) -> impl Iterator<Item = (usize, u8)> {
    let bytes = text.as_bytes();
    let mut quote = None;
    let mut escaped = false;
    let mut comment = false;
    (from..bytes.len()).filter_map(move |at| {
        let byte = *bytes.get(at)?;
        let before = at.checked_sub(1).and_then(|at| bytes.get(at)).copied();
        if comment {
            comment = byte != b'\n';
            return None;
        }
        if let Some(open) = quote {
            if escaped {
                escaped = false;
            } else if byte == b'\\' && open == b'"' {
                escaped = true;
            } else if byte == open {
                quote = None;
            }
            return None;
        }
        // A quote within a plain text, like an apostrophe, opens nothing.
        let opens = before.is_none_or(|before| b" \t\n\r,:[{".contains(&before));
        match byte {
            b'"' | b'\'' if opens => quote = Some(byte),
            b'#' if before.is_some_and(|before| before.is_ascii_whitespace()) => comment = true,
            _ => {}
        }
        b"[]{},".contains(&byte).then_some((at, byte))
    })
}

/// Returns where the list or object that begins at an offset begins and ends, with its brackets.
fn span(text: &str, start: usize) -> Option<(usize, usize)> {
    if !matches!(text.as_bytes().get(start), Some(b'[' | b'{')) {
        return None;
    }
    let mut depth = 0_usize;
    for (at, byte) in structure(text, start) {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some((start, at + 1));
                }
            }
            _ => {}
        }
    }
    None
}

/// Returns where each object in the list that begins at an offset begins and ends.
fn items(text: &str, start: usize) -> Vec<(usize, usize)> {
    let mut items = Vec::new();
    let (mut depth, mut from) = (0_usize, start);
    for (at, byte) in structure(text, start) {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                if depth == 2 {
                    from = at;
                }
            }
            b']' | b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 1 {
                    items.push((from, at + 1));
                } else if depth == 0 {
                    break;
                }
            }
            _ => {}
        }
    }
    items
}

/// Returns where the value of a member begins, in a JSON object that begins at an offset.
fn member(text: &str, object: usize, name: &str) -> Option<usize> {
    let (_, end) = span(text, object)?;
    let mut depth = 0_usize;
    let mut starts = Vec::new();
    for (at, byte) in structure(text, object).take_while(|(at, _)| *at < end) {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                if depth == 1 {
                    starts.push(at + 1);
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ if depth == 1 => starts.push(at + 1),
            _ => {}
        }
    }
    let key = format!("\"{name}\"");
    starts.into_iter().find_map(|start| {
        let rest = text.get(start..)?.trim_start().strip_prefix(&key)?;
        let value = rest.trim_start().strip_prefix(':')?.trim_start();
        Some(text.len() - value.len())
    })
}
