package resources

import (
	"limpet/sync/api/repopath"
	"regexp"
	"strings"
	"testing"
)

func TestFolderID(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ repo, dir, want string }{
		{"repository-abc1234", "team-a/", "team-a-waytuplw8ic87adathl-bup1mc3s1ah2t"},
		{"repository-abc1234", "team-a/prod/", "prod-vz4wimt9t0clu2ypr4gykhsfhuye727laup"},
		{"my-repo", "Team A/", "teama-5vgh9yxdfz5cri47kb37zy8p51ibb7wlza"},
		{"my-repo", "under_score/Nested__Dir/", "nested-dir-ekcqsql-u0zx1g6wmpa43f6ne5ygg"},
		{"my-repo", "a-very-long-directory-name-that-exceeds-limits/", "a-very-long-directory-name-that-lodl8ekk"},
		{"grafana-git-sync", "grafana/dashboards", "dashboards-2l-hn4ydylufhtuojgqr1nefebzgz"},
		{"unit-test", "hello/world", "world-wik-hjayboohlsvzzr2ob3he8cs7ffk0jd"},
		{"unit-test", "Hello, World!", "helloworld-sbcnvdmezf0jnvgfhpk5ewaoawbeg"},
		{"unit-test", strings.Repeat("/hello/world", 200), "world-bc9jpbg6ctg-w-pexkul-f1ic-bwer5-3r"},
	} {
		if got := FolderID(c.repo, c.dir); got != c.want {
			t.Errorf("FolderID(%q, %.40q) = %q, want %q", c.repo, c.dir, got, c.want)
		}
	}
}

func TestFileIDIgnoresTheFormat(t *testing.T) {
	t.Parallel()
	id := FileID("r", "team/cpu.json")
	for _, p := range []string{"team/cpu.yaml", "team/cpu.YML"} {
		if got := FileID("r", p); got != id {
			t.Errorf("FileID(%q) = %q, want %q", p, got, id)
		}
	}
	if other := FileID("r", "web/cpu.json"); other == id {
		t.Errorf("two directories give one name %q", id)
	}
}

var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)

func FuzzFolderID(f *testing.F) {
	for _, s := range []string{"", "a", "Team A/", "/", "..", "日本", "-_-", strings.Repeat("x", 4000), "a/\xff\x00"} {
		f.Add("repo", s)
	}
	f.Fuzz(func(t *testing.T, repo, dir string) {
		id := FolderID(repo, dir)
		if len(id) > maxName {
			t.Fatalf("%q is longer than %d bytes", id, maxName)
		}
		if strings.ContainsAny(id, "/_ ") || strings.Contains(id, "--") || strings.ToLower(id) != id {
			t.Fatalf("%q is no valid name", id)
		}
		if id != FolderID(repo, dir) {
			t.Fatal("two calls give two names")
		}
		if repopath.CheckPath(dir) == nil && dir != "" && !validName.MatchString(id) {
			t.Fatalf("allowed directory %q gives %q", dir, id)
		}
	})
}
