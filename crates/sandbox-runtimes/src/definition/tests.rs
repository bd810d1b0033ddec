//! Definitions that are accepted, and errors for those that are not.

use super::*;

const MINIMAL: &str = r#"
    name = "lua"
    extensions = ["lua"]
    source = "main.lua"
    [find]
    commands = ["lua"]
    describe = "echo version=5"
    missing = "install it"
    [run]
    argv = ["{executable}", "{entry}"]
"#;

fn parse(text: &str) -> Result<Definition, DefinitionError> {
    let base = |name: &str| match name {
        "base" => Some(toml::from_str(MINIMAL).expect("valid")),
        "plain" => Some(toml::from_str(&format!("{MINIMAL}plain = [\"{{entry}}\"]")).expect("valid")),
        _ => None,
    };
    let beside = |name: &str| match name {
        "runner.lua" => Ok("print(1)".to_owned()),
        _ => Err(std::io::ErrorKind::NotFound.into()),
    };
    Definition::parse("x.toml", text, base, beside).map(|(definition, _)| definition)
}

#[test]
fn a_definition_can_build_on_another() {
    let moon = parse("like = \"base\"\nname = \"moon\"\n[find]\ncommands = [\"moon\"]").expect("valid");
    assert_eq!((moon.name.as_str(), moon.source.as_str()), ("moon", "main.lua"));
    assert_eq!((moon.find.commands, moon.find.missing), (vec!["moon".to_owned()], "install it".to_owned()));
    let plain =
        |text: &str| parse(&format!("like = \"plain\"\nname = \"moon\"\n[run]\n{text}")).expect("valid").run.plain;
    assert_eq!(plain(""), Some(vec!["{entry}".to_owned()]));
    assert_eq!(plain("argv = [\"moon\", \"{entry}\"]"), None, "it has another command");
    let error = parse("like = \"nothing\"\nname = \"x\"").expect_err("refused").to_string();
    assert_eq!(error, "x.toml: like: unknown language 'nothing'");
    assert!(parse("like = 3").is_err());
}

#[test]
fn a_few_lines_are_enough() {
    let lua = parse(MINIMAL).expect("valid");
    assert_eq!(lua.run.argv, ["{executable}", "{entry}"]);
    assert!(lua.is_source("a/B.LUA") && !lua.is_source("lua") && !lua.is_source("x.py"));
    let runner = "[run]\nrunner = \"runner.lua\"";
    assert_eq!(parse(&MINIMAL.replace("[run]", runner)).expect("valid").run.runner.as_deref(), Some("print(1)"));
}

#[test]
fn a_range_of_versions_includes_both_ends() {
    let range = TestedVersions { from: "3.9".to_owned(), to: "3.13".to_owned() };
    for version in ["3.9", "3.9.0", "3.10.4", "3.13", "3.13.99"] {
        assert!(range.contains(version), "{version}");
    }
    for version in ["3.8.18", "2.7", "3.14.0", "4.0", "unknown"] {
        assert!(!range.contains(version), "{version}");
    }
}

#[test]
fn errors_name_the_file_and_the_mistake() {
    let wrong = |from: &str, to: &str| parse(&MINIMAL.replace(from, to)).expect_err("refused").to_string();
    assert!(wrong("name = \"lua\"", "name = \"L ua\"").contains("x.toml: invalid name 'L ua'"));
    assert!(wrong("source = \"main.lua\"", "source = \"../main.lua\"").contains("climbs"));
    assert!(wrong("extensions", "extentions").contains("extentions"));
    assert!(wrong("commands = [\"lua\"]", "commands = []").contains("find.commands must list"));
    assert!(wrong("commands = [\"lua\"]", "commands = [\"/bin/lua\"]").contains("without directories"));
    assert!(wrong("argv = [\"{executable}\", \"{entry}\"]", "argv = []").contains("run.argv is empty"));
    assert!(wrong("{entry}", "{source}").contains("unknown placeholder {source}; expected {executable}"));
    assert!(wrong("{entry}", "{runner}").contains("there is no run.runner"));
    assert!(wrong("missing", "system = [\"/root\"]\nmissing").contains("not below /etc"));
    assert!(wrong("missing", "system = [\"/etc/../root\"]\nmissing").contains("not below /etc"));
    assert!(wrong("[run]", "[run]\nrunner = \"../x\"").contains("run.runner: path \"../x\" climbs"));
    assert!(wrong("[run]", "[run]\nrunner = \"/x\"").contains("run.runner: path \"/x\" is absolute"));
    assert!(wrong("[run]", "[run]\nrunner = \"none\"").contains("cannot read none"));
    assert!(wrong("[run]", "[errors]\nrun = [\"(\"]\n[run]").contains("invalid regular expression"));
    let prepare = "[prepare]\nwhat = \"x\"\nscript = \"x\"\ntarget = \"/a/../b\"\nstages = []\n[run]";
    assert!(wrong("[run]", prepare).contains("prepare.target"));
}
