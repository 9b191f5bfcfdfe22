package cli_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckOfADamagedFile: whoever finds the state file damaged says what is wrong with it,
// where the old one is kept and what to do, and is no success.
func TestCheckOfADamagedFile(t *testing.T) {
	t.Parallel()
	sound := newHome(t)
	sound.must(t, 0, "repo", "create", "boards", "--url", "https://git.invalid/boards.git")
	good, err := os.ReadFile(sound.state())
	if err != nil {
		t.Fatal(err)
	}
	broken := bytes.Clone(good)
	for at := 2 * 4096; at < min(9*4096, len(broken)); at++ {
		broken[at] ^= 0xa5
	}
	for name, data := range map[string][]byte{
		"garbage":      bytes.Repeat([]byte("no state\x00\xff\xfe"), 9000),
		"broken pages": broken,
		"cut off":      good[:9000],
		"a beginning":  good[:100],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			damaged := func() *home {
				h := newHome(t)
				h.file(t, "state/limpet.db", string(data))
				return h
			}
			// kept finds the old file, which has to be named in what was said.
			kept := func(h *home, said string) {
				t.Helper()
				old, err := filepath.Glob(h.state() + ".corrupt-*")
				if err != nil || len(old) != 1 {
					t.Fatalf("set aside: %v %v", old, err)
				}
				if is, err := os.ReadFile(old[0]); err != nil || !bytes.Equal(is, data) {
					t.Errorf("what was set aside is another file: %v", err)
				}
				for _, text := range []string{"damaged", old[0], "limpet repo list"} {
					if !strings.Contains(said, text) {
						t.Errorf("no %q in: %s", text, said)
					}
				}
			}

			h := damaged()
			r := h.must(t, 9, "store", "check")
			kept(h, r.out+r.err)
			if strings.Contains(r.out, " 0 problems") || !strings.Contains(r.err, "try: limpet repo list") {
				t.Errorf("store check: %s%s", r.out, r.err)
			}
			if n := strings.Count(r.err, ".corrupt-"); n != 1 {
				t.Errorf("the warnings name the old file %d times: %s", n, r.err)
			}
			if r := h.must(t, 0, "store", "check"); !strings.Contains(r.out, " 0 problems") {
				t.Errorf("the new file: %s", r.out)
			}

			h = damaged()
			var report struct{ Problems []string }
			r = h.must(t, 9, "store", "check", "-o", "json")
			if err := json.Unmarshal([]byte(r.out), &report); err != nil || len(report.Problems) == 0 || !strings.Contains(report.Problems[0], ".corrupt-") {
				t.Errorf("%v: %s", err, r.out)
			}

			h = damaged()
			kept(h, h.must(t, 1, "status").out)
			h.must(t, 0, "status")

			h = damaged()
			kept(h, h.must(t, 1, "doctor").out)

			h = damaged()
			d := h.daemon(t)
			kept(h, d.log.String())
			if code := d.stop(t); code != 0 {
				t.Errorf("the daemon: exit %d", code)
			}
		})
	}
}

// TestTextInPlaceOfAStateFile: a slip on the command line does not move a person's file.
func TestTextInPlaceOfAStateFile(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	notes := h.file(t, "notes/notes.txt", "milk\nbread\n")
	if err := os.Chmod(notes, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--daemon"}, {"status"}, {"store", "check"}, {"repo", "list"}, {"--accessible"}, {"doctor"}, {"doctor", "--fix"}, {"api", "--listen", "127.0.0.1:0", "--sign-listen", "127.0.0.1:0"}} {
		r, code := h.run(t, append([]string{"--state", notes}, args...)...), 9
		if args[0] == "doctor" {
			code = 1
		}
		if r.code != code || !strings.Contains(r.err, notes+" is a text file") || !strings.Contains(r.err, "--state FILE") {
			t.Errorf("%v: exit %d: %s", args, r.code, r.err)
		}
	}
	text, err := os.ReadFile(notes)
	info, _ := os.Stat(notes)
	left, _ := os.ReadDir(filepath.Dir(notes))
	if err != nil || string(text) != "milk\nbread\n" || info.Mode().Perm() != 0o644 || len(left) != 1 {
		t.Errorf("%v: %q, mode %s, %v beside it", err, text, info.Mode(), left)
	}
}
