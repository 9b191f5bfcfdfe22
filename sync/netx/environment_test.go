package netx

import (
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"

	"golang.org/x/net/http/httpproxy"
)

// TestReadEnvironment checks that an invalid proxy is neither used nor bypassed, and
// that its password is not shown.
func TestReadEnvironment(t *testing.T) {
	const secret = "CANARY-env-password"
	for value, want := range map[string]string{ // the proxy of an https URL; "" = an error
		"http://proxy.example.com:3128":                    "http://proxy.example.com:3128",
		"proxy.example.com:3128":                           "http://proxy.example.com:3128",
		"proxy.example.com":                                "http://proxy.example.com",
		"http://proxy.example.com/":                        "http://proxy.example.com/",
		"socks5h://127.0.0.1:1080":                         "socks5h://127.0.0.1:1080",
		"https://ann:" + secret + "@proxy.example.com":     "https://ann:" + secret + "@proxy.example.com",
		"http://[::1]:3128":                                "http://[::1]:3128",
		"http//proxy.example.com:3128":                     "",
		"http:/proxy.example.com:3128":                     "",
		"http://":                                          "",
		"socks4://proxy.example.com:1080":                  "",
		"ftp://proxy.example.com":                          "",
		"http://proxy.example.com:port":                    "",
		"http://proxy.example.com:99999":                   "",
		"http://proxy.example.com:":                        "",
		"http://proxy.example.com:3128, http://other:3128": "",
		"http://a b:3128":                                  "",
		"http://ann:pa#" + secret + "@proxy.example.com":   "",
		"http://ann:%zz" + secret + "@proxy.example.com":   "",
		"ann:" + secret + "@proxy.example.com:port":        "",
		"http://proxy.example.com/pac?x=1":                 "",
	} {
		for _, name := range []string{"HTTPS_PROXY", "https_proxy"} {
			env := map[string]string{name: value, "NO_PROXY": "inner.example.com,10.0.0.0/8"}
			e := ReadEnvironment(func(name string) string { return env[name] })
			got, err := e.Proxy(&url.URL{Scheme: "https", Host: "git.example.com"})
			var fault *EnvironmentError
			switch {
			case want != "" && (err != nil || got == nil || got.String() != want || len(e.Faults()) > 0):
				t.Errorf("%s=%s: %v %v %v", name, value, got, err, e.Faults())
			case want == "" && (!errors.As(err, &fault) || got != nil || len(e.Faults()) != 1 || fault.Name != name ||
				strings.Contains(err.Error(), secret)):
				t.Errorf("%s=%s: %v %v", name, value, got, err)
			}
			for _, u := range []string{"https://inner.example.com", "https://10.1.1.1", "https://127.0.0.1:1", "https://localhost",
				"http://git.example.com"} {
				at, _ := url.Parse(u)
				if got, err := e.Proxy(at); got != nil || err != nil {
					t.Errorf("%s=%s for %s: %v %v", name, value, u, got, err)
				}
			}
		}
	}
	for entry, good := range map[string]bool{"": true, "*": true, "localhost": true, ".example.com": true, "*.example.com": true,
		"example.com:8080": true,
		"10.0.0.0/8":       true, "fd00::/8": true, "::1": true, "[::1]": true, "[::1]:80": true, "10.0.0.1:80": true,
		"10.0.0.0/99": false, "https://example.com": false, "a.example.com b.example.com": false, "example.*": false, "a;b": false,
		"example.com:http":               false,
		"ann:" + secret + "@example.com": false} {
		e := ReadEnvironment(func(name string) string { return map[string]string{"NO_PROXY": "first.example.com, " + entry}[name] })
		if (len(e.Faults()) == 0) != good {
			t.Errorf("NO_PROXY with %q: %v", entry, e.Faults())
		}
		for _, f := range e.Faults() {
			if f.Name != "NO_PROXY" || strings.Contains(f.Error(), secret) {
				t.Errorf("NO_PROXY with %q: %v", entry, f)
			}
		}
	}
}

// TestEnvironmentIsThatOfGo: what is sound means what it means to net/http.
func TestEnvironmentIsThatOfGo(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "proxy.example.com:3128")
	t.Setenv("HTTP_PROXY", "socks5://127.0.0.1:1080")
	t.Setenv("NO_PROXY", "*.inner.example.com, 10.0.0.0/8")
	for _, text := range []string{"https://git.example.com", "http://git.example.com", "https://a.inner.example.com",
		"https://inner.example.com", "https://10.1.1.1", "http://localhost:3000"} {
		u, _ := url.Parse(text)
		want, _ := httpproxy.FromEnvironment().ProxyFunc()(u)
		got, err := ReadEnvironment(os.Getenv).Proxy(u)
		if err != nil || (got == nil) != (want == nil) || got != nil && got.String() != want.String() {
			t.Errorf("%s: %v %v, net/http has %v", text, got, err, want)
		}
	}
}
