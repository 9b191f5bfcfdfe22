package git

import (
	"strings"
	"testing"
)

func TestParseConfig(t *testing.T) {
	t.Parallel()
	got, err := parseConfig([]byte("# about\n[submodule \"a b\"]\r\n\tpath = \"a b\" ; x\n url=../x.git # y\n[LFS]\nURL = https://h/x\n"))
	if err != nil {
		t.Fatal(err)
	}
	sub := got.Section("submodule").Subsection("a b")
	if sub.Option("path") != "a b" || sub.Option("url") != "../x.git" || got.Section("lfs").Option("url") != "https://h/x" {
		t.Errorf("%+v", got)
	}
	for _, bad := range []string{"a = b", "[a", "[a b]", "[a \"x]", "[a]\nb c = d", "[a]\nb = \"c", "[a]\nb = \x1b[2J", "[a \"\x1b\"]\nb = c",
		"[a]\nb = \xff", "[a]\nb = \"\\n\"", strings.Repeat("\n", maxConfig+1)} {
		if got, err := parseConfig([]byte(bad)); err == nil {
			t.Errorf("%.40q is read as %v", bad, got)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte("[submodule \"a\"]\n\tpath = a\n\turl = ../x.git\n[lfs]\nurl = \"https://h/x\" # y\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := parseConfig(data)
		if err != nil {
			return
		}
		if url := cfg.Section("lfs").Option("url"); strings.ContainsAny(url, "\n\x00\x1b") {
			t.Errorf("%q", url)
		}
	})
}
