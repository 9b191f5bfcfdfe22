package text

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                                  "",
		"plain text 1.0":                    "plain text 1.0",
		"漢字 é 🙂 אב":                         "漢字 é 🙂 אב",
		"a\nb\tc\rd":                        "a b c d",
		"\x1b]0;pwn\x07\x1b[31mred":         "]0;pwn[31mred",
		"c1 \u009b31m":                      "c1 31m",
		"\u202eevil\u2066 \u200bhidden\xff": "evil hidden",
		"tag \U000e0041":                    "tag ",
		"join\u200der":                      "joiner",
		"\u2764\ufe0f 1\ufe0f\u20e3 \U0001f44d\U0001f3fd": "\u2764 1\u20e3 \U0001f44d",
	} {
		if got := Clean(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add("\x1b[2J\u202e\xff\x9b")
	f.Fuzz(func(t *testing.T, in string) {
		out := Clean(in)
		if !utf8.ValidString(out) || Clean(out) != out {
			t.Errorf("%q became %q", in, out)
		}
		for _, r := range out {
			if r < 0x20 || r >= 0x7f && r < 0xa0 {
				t.Errorf("%q still has %q", in, r)
			}
		}
	})
}

func TestWords(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		"": nil, "  ": nil, " a  b\t": {"a", "b"}, `a 'b "c' "d 'e"`: {"a", `b "c`, "d 'e"}, `a\ b "c\"d" 'e\f' ''`: {"a b", `c"d`, `e\f`, ""},
		"é '漢 字'": {"é", "漢 字"},
	} {
		if got, err := Words(line); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v", line, got, err)
		}
	}
	for _, line := range []string{"a 'b", `"`, `a\`} {
		if got, err := Words(line); err == nil {
			t.Errorf("%q: %q", line, got)
		}
	}
	for _, word := range []string{"", "a b", "it's", `\"$x`, "漢"} {
		if got, err := Words("limpet " + ShellWord(word)); err != nil || !slices.Equal(got, []string{"limpet", word}) {
			t.Errorf("%q: %q, %v", word, got, err)
		}
	}
}

func TestTexts(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{-time.Hour: "0s", 59*time.Second + 999*time.Millisecond: "59s", time.Minute: "1m",
		59 * time.Minute: "59m", time.Hour: "1h", 47 * time.Hour: "47h", 48 * time.Hour: "2d"} {
		if got := Age(d); got != want {
			t.Errorf("age of %s: %s, want %s", d, got, want)
		}
	}
	for d, want := range map[time.Duration]string{-time.Hour: "<1ms", 0: "<1ms", time.Millisecond - 1: "<1ms", time.Millisecond: "1ms",
		time.Second - 1: "999ms", time.Second: "1.0s", 1690 * time.Millisecond: "1.6s", 10*time.Second - 1: "9.9s", 10 * time.Second: "10s",
		time.Minute - 1: "59s", time.Minute: "1:00", 12*time.Minute + 3*time.Second: "12:03", time.Hour: "1h00m", 99 * time.Hour: "99h00m",
		100 * time.Hour: "4d04h"} {
		if got := Took(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1 << 10: "1.0 KiB", 28 << 10: "28 KiB", 1 << 20: "1.0 MiB",
		61 << 20: "61 MiB", 3 << 30: "3.0 GiB", 5000 << 30: "5000 GiB"} {
		if got := Size(n); got != want {
			t.Errorf("size of %d: %s, want %s", n, got, want)
		}
	}
	if Plural(1, "record") != "1 record" || Plural(0, "record") != "0 records" || OrDash("") != "-" || OrDash("x") != "x" {
		t.Error("plural or dash")
	}
	if long := strings.Repeat("\u6f22", 40); ShortRef(long) != long {
		t.Errorf("no commit is cut: %q", ShortRef(long))
	}
	if ShortRef("0123456789012345678901234567890123456789") != "0123456" || ShortRef("main") != "main" {
		t.Error("short ref")
	}
}

func TestShellWord(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"team-dash": "team-dash", "": "''", "a b": "'a b'", "it's": `'it'\''s'`,
		"$(reboot)": "'$(reboot)'", "--wait": "--wait", "漢": "'漢'"} {
		if got := ShellWord(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

// TestWithoutLocalPorts checks that nothing but the local end of a connection is removed.
func TestWithoutLocalPorts(t *testing.T) {
	t.Parallel()
	if got := WithoutLocalPorts("read udp 10.0.0.2:50312->10.0.0.1:53: i/o timeout"); got != "read udp 10.0.0.1:53: i/o timeout" {
		t.Errorf("%q", got)
	}
	for _, plain := range []string{"", "a->b", "->", "old.json -> new.json", "1.2.3.4->5.6.7.8", "x 1.2.3.4:5->"} {
		if got := WithoutLocalPorts(plain); got != plain {
			t.Errorf("%q has become %q", plain, got)
		}
	}
}

func FuzzClip(f *testing.F) {
	f.Add("héllo \xff", 7)
	f.Add("日本語", 4)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit = 3 + (limit&0x7fffffff)%100
		if got := Clip(s, limit); len(got) > limit || !utf8.ValidString(got) {
			t.Fatalf("Clip(%q, %d) = %q", s, limit, got)
		}
	})
}
