// Package browser opens the page of a running agent in a real Chromium.
package browser

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

var pictures = flag.String("pictures", "", "the directory to leave the screenshots in")

const secret = "hunter2-of-lab-east"

const objects = `
apiVersion: provisioning.grafana.app/v0alpha1
kind: Repository
metadata: {name: team-dash, namespace: default}
spec:
  title: Boards
  type: git
  git: {url: "file://SITE/repo", branch: main, path: grafana}
  sync: {enabled: true, target: folder, intervalSeconds: 60}
---
apiVersion: provisioning.grafana.app/v0alpha1
kind: Repository
metadata: {name: lab-east-with-a-name-that-is-rather-long, namespace: default}
spec:
  title: Broken
  type: git
  git: {url: "https://127.0.0.1:1/obs/east.git", branch: main, path: grafana}
  sync: {enabled: true, target: folder, intervalSeconds: 60}
secure: {token: {create: SECRET}}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: firmware, namespace: default}
spec: {interval: 1m, url: "https://127.0.0.1:1/firmware.git", ref: {branch: main}}
`

// start runs limpet until the end of the test and returns the origin of its page.
func start(t *testing.T, limpet, dir string, flags ...string) string {
	t.Helper()
	args := append([]string{"--daemon", "--state", filepath.Join(dir, "limpet.db"), "--log-format", "json",
		"--telemetry-listen", "127.0.0.1:0"}, flags...)
	cmd := exec.Command(limpet, args...)
	cmd.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	lines, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var read sync.WaitGroup
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // its job has no end
		read.Wait()
		_ = cmd.Wait()
	})
	found := make(chan string, 1)
	read.Go(func() {
		for scan := bufio.NewScanner(lines); scan.Scan(); {
			var line struct{ Msg, Address string }
			if json.Unmarshal(scan.Bytes(), &line) == nil && line.Msg == "telemetry" {
				found <- "http://" + line.Address
			}
		}
		close(found)
	})
	origin, ok := <-found
	if !ok {
		t.Fatal("the agent has ended")
	}
	return origin
}

func build(t *testing.T) string {
	t.Helper()
	limpet := filepath.Join(t.TempDir(), "limpet")
	cmd := exec.Command("go", "build", "-C", "../..", "-trimpath", "-o", limpet, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return limpet
}

// read returns the answer to a GET.
func read(t *testing.T, address string) (int, string) {
	t.Helper()
	resp, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// newSite starts an agent with a repository that works, one that fails, a source and a job that
// runs, and returns the origin of its page.
func newSite(t *testing.T, limpet string) string {
	t.Helper()
	dir := t.TempDir()
	run := func(name string, args ...string) {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 12 {
		write(fmt.Sprintf("repo/grafana/board-%d.json", i), fmt.Sprintf(`{"uid":"b%d","title":"Board %d","schemaVersion":41,"tags":[],"panels":[]}`, i, i))
	}
	repo := filepath.Join(dir, "repo")
	run("git", "init", "-q", "-b", "main", repo)
	run("git", "-C", repo, "add", ".")
	run("git", "-C", repo, "-c", "user.name=a", "-c", "user.email=a@example", "commit", "-qm", "boards")
	write("objects.yaml", strings.NewReplacer("SITE", dir, "SECRET", secret).Replace(objects))
	origin := start(t, limpet, dir, "--local-git-prefix", dir)
	state := filepath.Join(dir, "limpet.db")
	run(limpet, "--state", state, "apply", "-f", filepath.Join(dir, "objects.yaml"))
	run(limpet, "--state", state, "job", "create", "team-dash", "--action", "test", "--duration", "5m", "--progress-updates", "300")
	deadline := time.After(time.Minute)
	for {
		_, body := read(t, origin+"/status.json")
		if strings.Contains(body, `"state":"success"`) && strings.Contains(body, `"progress":1`) && strings.Contains(body, "is not healthy") {
			return origin
		}
		select {
		case <-deadline:
			t.Fatalf("the site is not as it should be: %.3000s", body)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// visit is what a browser did.
type visit struct {
	mu       sync.Mutex // guards the fields below
	asked    []string
	problems []string
}

func (v *visit) see(event any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		v.asked = append(v.asked, e.Request.URL)
	case *log.EventEntryAdded:
		v.problems = append(v.problems, e.Entry.Text)
	case *runtime.EventExceptionThrown:
		v.problems = append(v.problems, e.ExceptionDetails.Text)
	}
}

// do runs an action of the browser.
func do[T any](t *testing.T, ctx context.Context, a chromedp.Action[T]) T {
	t.Helper()
	out, err := chromedp.Run(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestPage: on a phone and on a screen, light and dark, the page fits its width, can be read, has
// no fault of its own in the log of the browser, and asks no other host for anything.
func TestPage(t *testing.T) {
	limpet := build(t)
	origin := newSite(t, limpet)
	port := origin[strings.LastIndexByte(origin, ':'):]
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.ExecPath("chromium"),
		chromedp.Flag("host-resolver-rules", "MAP rebound.example 127.0.0.1"))
	browser, quit := chromedp.NewExecAllocator(t.Context(), options...)
	defer quit()
	backgrounds := map[string]string{}
	for _, width := range []int64{390, 1440} {
		for _, scheme := range []string{"light", "dark"} {
			t.Run(fmt.Sprintf("%d %s", width, scheme), func(t *testing.T) {
				ctx, closeTab := chromedp.NewContext(browser)
				defer closeTab()
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				var seen visit
				medium := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
				_, mediumErr := chromedp.Call(ctx, emulation.SetEmulatedMedia, medium)
				_, networkErr := chromedp.Call(ctx, network.Enable, network.EnableParams{})
				_, logErr := chromedp.Call(ctx, log.Enable, cdp.Empty{})
				if err := errors.Join(mediumErr, networkErr, logErr, chromedp.Listen(ctx, seen.see)); err != nil {
					t.Fatal(err)
				}
				do(t, ctx, chromedp.EmulateViewport(width, 844))
				do(t, ctx, chromedp.Navigate(origin+"/"))
				text := do(t, ctx, chromedp.Evaluate[string](`document.body.innerText`))
				scroll := do(t, ctx, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`))
				background := do(t, ctx, chromedp.Evaluate[string](`getComputedStyle(document.body).backgroundColor`))
				least := do(t, ctx, chromedp.Evaluate[string](leastContrast))
				picture := do(t, ctx, chromedp.FullScreenshot(100))
				backgrounds[scheme] = background
				if scroll > width {
					t.Errorf("the page is %d wide", scroll)
				}
				if least != "" {
					t.Errorf("too little contrast: %s", least)
				}
				for _, want := range []string{"degraded", "team-dash", "lab-east-with-a-name-that-is-rather-long", "firmware", "Needs attention"} {
					if !strings.Contains(text, want) {
						t.Errorf("%q is not to be seen in:\n%s", want, text)
					}
				}
				seen.mu.Lock()
				defer seen.mu.Unlock()
				for _, address := range seen.asked {
					if u, err := url.Parse(address); err != nil || u.Scheme != "data" && "http://"+u.Host != origin {
						t.Errorf("asked for %s", address)
					}
				}
				if len(seen.asked) == 0 || len(seen.problems) > 0 {
					t.Errorf("asked for %q; the browser says %q", seen.asked, seen.problems)
				}
				if *pictures != "" {
					if err := os.WriteFile(filepath.Join(*pictures, fmt.Sprintf("%d-%s.png", width, scheme)), picture, 0o600); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	if backgrounds["light"] == backgrounds["dark"] {
		t.Errorf("light and dark are alike: %q", backgrounds)
	}
	for _, path := range []string{"/", "/status.json"} {
		if code, body := read(t, origin+path); code != 200 || strings.Contains(body, secret) {
			t.Errorf("%s: %d, with the secret: %t", path, code, strings.Contains(body, secret))
		}
	}
	ctx, closeTab := chromedp.NewContext(browser)
	defer closeTab()
	resp, err := chromedp.RunResponse(ctx, chromedp.Navigate("http://rebound.example"+port+"/status.json"))
	if err != nil || resp.Status != http.StatusMisdirectedRequest {
		t.Errorf("under the name of another site: %v, %+v", err, resp)
	}
	bare := start(t, limpet, t.TempDir(), "--no-page")
	for path, want := range map[string]int{"/": 404, "/status.json": 404, "/healthz": 200} {
		if code, _ := read(t, bare+path); code != want {
			t.Errorf("with --no-page %s: %d", path, code)
		}
	}
}

// leastContrast returns the first text whose contrast to what is behind it is less than 4.5 to 1,
// which WCAG asks for; "" when there is none.
const leastContrast = `(() => {
  const numbers = (c) => c.match(/[\d.]+/g).map(Number);
  const light = (c) => {
    const [r, g, b] = numbers(c).map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = getComputedStyle(e).backgroundColor, n = numbers(c);
      if (n.length < 4 || n[3] > 0) return c;
    }
    return "rgb(255,255,255)";
  };
  for (const e of document.querySelectorAll("body *")) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || e.closest("svg")) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) return e.tagName + "." + e.className + " " + e.textContent.trim().slice(0, 40);
  }
  return "";
})()`
