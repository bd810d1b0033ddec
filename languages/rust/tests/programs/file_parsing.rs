// Files: writing, buffered reading, an INI-like parser with its own error type, binary round trip.
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::{error::Error, fmt};

const CONFIG: &str = "\
; servers
[web]
port = 8080
[database]
port=5432
";

#[derive(Debug)]
enum ConfigError {
    Io(io::Error),
    Syntax { line: usize, text: String },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "cannot read: {}", error.kind()),
            Self::Syntax { line, text } => write!(f, "line {line}: cannot parse {text:?}"),
        }
    }
}

impl Error for ConfigError {}

impl From<io::Error> for ConfigError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn parse(path: &PathBuf) -> Result<BTreeMap<String, String>, ConfigError> {
    let mut section = String::new();
    let mut values = BTreeMap::new();
    for (line, number) in BufReader::new(File::open(path)?).lines().zip(1..) {
        let line = line?;
        let text = line.trim();
        if text.is_empty() || text.starts_with(';') {
            continue;
        } else if let Some(name) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
            section = name.to_string();
        } else if let Some((key, value)) = text.split_once('=') {
            values.insert(format!("{section}.{}", key.trim()), value.trim().to_string());
        } else {
            return Err(ConfigError::Syntax { line: number, text: text.to_string() });
        }
    }
    Ok(values)
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("file_parsing-{}", std::process::id()));
    fs::create_dir(&folder)?;
    let path = folder.join("server.ini");
    fs::write(&path, CONFIG)?;
    println!("{:#?}", parse(&path)?);

    writeln!(fs::OpenOptions::new().append(true).open(&path)?, "nonsense")?;
    println!("{}", parse(&path).unwrap_err());
    println!("{}", parse(&folder.join("missing")).unwrap_err());

    let numbers = folder.join("numbers.bin");
    let mut writer = BufWriter::new(File::create(&numbers)?);
    (0..1000u32).try_for_each(|n| writer.write_all(&(n * n).to_le_bytes()))?;
    drop(writer);
    let mut file = File::open(&numbers)?;
    file.seek(SeekFrom::Start(4 * 99))?;
    let mut four = [0; 4];
    file.read_exact(&mut four)?;
    println!("99 squared: {}", u32::from_le_bytes(four));
    fs::remove_dir_all(&folder)?;
    Ok(())
}
