package main

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// build returns the directory of a release of one architecture.
func build(t *testing.T, program, version string) string {
	t.Helper()
	r := release{dist: t.TempDir(), version: version, date: time.Unix(1_700_000_000, 0).UTC()}
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"limpet-linux-amd64":   data,
		"LICENSE":              []byte("licence"),
		"THIRD_PARTY_LICENSES": []byte("licences"),
	} {
		if err := os.WriteFile(filepath.Join(r.dist, name), data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.run(program); err != nil {
		t.Fatal(err)
	}
	return r.dist
}

// compile returns limpet for this host, of a version.
func compile(t *testing.T, version string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "limpet")
	cmd := exec.Command("go", "build", "-C", "../..", "-trimpath", "-ldflags", "-X limpet/tui/cli/command.Version="+version, "-o", program, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// TestRelease: two runs give the same files, and what is in them is all of a package.
func TestRelease(t *testing.T) {
	program := compile(t, "v1.2.3")
	dist, again := build(t, program, "v1.2.3"), build(t, program, "v1.2.3")
	err := filepath.WalkDir(dist, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dist, path)
		if err != nil {
			return err
		}
		one, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		two, err := os.ReadFile(filepath.Join(again, name))
		if err != nil || !bytes.Equal(one, two) {
			t.Errorf("%s differs: %v", name, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	checkPackage(t, filepath.Join(dist, "limpet-linux-amd64.deb"))
	checkLife(t, dist, build(t, compile(t, "v1.3.0"), "v1.3.0"))
	image, err := tarball.ImageFromPath(filepath.Join(dist, "limpet-linux-amd64.image.tar"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(image); err != nil {
		t.Error(err)
	}
	index, err := layout.ImageIndexFromPath(filepath.Join(dist, "limpet-oci"))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("%+v, %v", manifest, err)
	}
	if of := manifest.Manifests[0].Platform; of == nil || of.OS != "linux" || of.Architecture != "amd64" {
		t.Errorf("a host cannot choose its image: %v", of)
	}
}

// checkPackage checks the files of a .deb, and the unit among them.
func checkPackage(t *testing.T, path string) {
	t.Helper()
	data, err := exec.Command("dpkg-deb", "--fsys-tarfile", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*tar.Header{}
	var unit bytes.Buffer
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		header, err := r.Next()
		if err != nil {
			break
		}
		name := strings.TrimPrefix(header.Name, ".")
		found[name] = header
		if strings.HasSuffix(name, ".service") {
			if _, err := unit.ReadFrom(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, mode := range map[string]int64{
		programPath:                                        0o755,
		configPath:                                         0o600,
		"/usr/lib/systemd/system/limpet.service":           0o644,
		"/usr/share/man/man1/limpet.1":                     0o644,
		"/usr/share/bash-completion/completions/limpet":    0o644,
		"/usr/share/zsh/vendor-completions/_limpet":        0o644,
		"/usr/share/fish/vendor_completions.d/limpet.fish": 0o644,
		"/usr/share/doc/limpet/copyright":                  0o644,
		"/usr/share/doc/limpet/THIRD_PARTY_LICENSES":       0o644,
	} {
		if header := found[name]; header == nil || header.Mode&0o777 != mode || header.Size == 0 {
			t.Errorf("%s: %+v, want mode %o", name, header, mode)
		}
	}
	for _, line := range []string{"ExecStart=" + programPath + " --daemon ", "LoadCredential=config:" + configPath + "\n"} {
		if !strings.Contains(unit.String(), "\n"+line) {
			t.Errorf("the unit lacks %q:\n%s", line, unit.String())
		}
	}
}

// checkLife installs a .deb in a root of its own, upgrades and removes it, as dpkg does on a host.
func checkLife(t *testing.T, before, after string) {
	t.Helper()
	root := t.TempDir()
	path := func(name string) string { return filepath.Join(root, name) }
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "var/lib/limpet"} {
		if err := os.MkdirAll(path(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"var/lib/dpkg/status", "var/lib/dpkg/available"} {
		if err := os.WriteFile(path(file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func(want int, program string, args ...string) string {
		t.Helper()
		cmd := exec.Command(program, args...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + root, "LC_ALL=C", "LIMPET_STATE=" + path("var/lib/limpet/limpet.db")}
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != want {
			t.Fatalf("%s %v: exit code %d, %v\n%s", program, args, code, err, out)
		}
		return string(out)
	}
	dpkg := func(args ...string) {
		t.Helper()
		run(0, "dpkg", append([]string{"--root=" + root, "--log=" + path("dpkg.log"), "--force-not-root", "--force-script-chrootless"}, args...)...)
	}
	deb := func(dist string) string { return filepath.Join(dist, "limpet-linux-amd64.deb") }
	limpet, config, state := path(programPath), path(configPath), path("var/lib/limpet/limpet.db")
	dpkg("--install", deb(before))
	run(0, limpet, "doctor")
	run(0, limpet, "demo", "--once", "--state", state)
	if err := os.WriteFile(config, []byte("drivers: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dpkg("--install", deb(after))
	if out := run(0, limpet, "version"); !strings.Contains(out, "v1.3.0") {
		t.Errorf("version: %s", out)
	}
	if text, err := os.ReadFile(config); err != nil || string(text) != "drivers: 1\n" {
		t.Errorf("the config after the upgrade: %q, %v", text, err)
	}
	run(0, limpet, "store", "check")
	dpkg("--remove", "limpet")
	for name, there := range map[string]bool{limpet: false, config: true, state: true} {
		if _, err := os.Stat(name); (err == nil) != there {
			t.Errorf("%s after the removal: %v", name, err)
		}
	}
	dpkg("--purge", "limpet")
	left := exec.Command("find", root, "-iname", "*limpet*")
	if out, err := left.Output(); err != nil || len(out) > 0 {
		t.Errorf("left after the purge: %s, %v", out, err)
	}
}

// TestPackageVersion: packages are ordered by time.
func TestPackageVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.0":                      "1.2.0",
		"v1.2.0-rc.1":                 "1.2.0~rc.1",
		"v1.2.0-4-g0a1b2c3d":          "1.2.0+4.g0a1b2c3d",
		"v1.2.0-rc.1-4-g0a1b2c-dirty": "1.2.0~rc.1+4.g0a1b2c+dirty",
		"0a1b2c3d":                    "0.0.19700101000000+0a1b2c3d",
	} {
		r := release{version: version, date: time.Unix(0, 0).UTC()}
		if got := r.packageVersion(); got != want {
			t.Errorf("%s: %s, want %s", version, got, want)
		}
	}
}
