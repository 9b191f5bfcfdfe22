package kube

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"limpet/sync/fileid"
	"limpet/sync/text"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// defaultTimeout is how long one call may take, its answer included. It is
// shorter than the margin of a lease: 60 s of expiry less two renewals of 10 s.
const defaultTimeout = 10 * time.Second

// Config says which API to speak to and how. The names in its errors are those of the command-line
// flags.
type Config struct {
	// Server is the base URL. A trailing slash and a trailing "/apis" mean nothing; any other path is
	// kept as a prefix. Empty with a kubeconfig means the server named there.
	Server string
	// Kubeconfig is the path of a kubeconfig file, of which the current context is used.
	Kubeconfig string
	// Token is sent as bearer token or given to the exchange. TokenFile is read
	// again when it changes; only one of the two may be set.
	Token     string
	TokenFile string
	// TokenExchangeURL is where the token is exchanged for access tokens, one for each API group that
	// repositories hold objects of; they travel in X-Access-Token. Empty = the token itself in
	// Authorization.
	TokenExchangeURL string
	TLS              TLS
	// UserAgent of every request; "" = "limpet".
	UserAgent string
	// Logger receives warnings and, at debug level, the lines of client-go; nil = slog.Default().
	Logger *slog.Logger
	// Transport replaces the network: an API in the same process or behind a
	// unix socket. Server is then only a base URL and may be empty.
	Transport http.RoundTripper
	// Timeout of one call, the answer included; 0 = defaultTimeout. Watches have none.
	Timeout time.Duration
}

// TLS names the files of the connection. All of them are read again when they change, without a
// restart.
type TLS struct {
	// Insecure switches the check of the server's certificate off. nil = off
	// for loopback hosts only, and there only when no CA file is given.
	Insecure *bool
	// CertFile and KeyFile are the client certificate, PEM; both or none.
	CertFile, KeyFile string
	// CAFile holds the only certificates that are trusted, PEM; "" = those of the system.
	CAFile string
}

// LogValue keeps the token out of logs.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(slog.String("server", text.Redact(c.Server)), slog.String("kubeconfig", c.Kubeconfig),
		slog.Bool("hasToken", c.Token != "" || c.TokenFile != ""), slog.String("exchange", text.Redact(c.TokenExchangeURL)))
}

// String keeps the token out of messages.
func (c Config) String() string { return c.LogValue().String() }

// GoString keeps the token out of %#v.
func (c Config) GoString() string { return c.String() }

var errNoServer = errors.New("no API server is configured")

// FlagError is a mistake in the configuration, found before any request.
type FlagError struct {
	Flag string // with its dashes
	Err  error
}

func (e *FlagError) Error() string { return e.Flag + ": " + e.Err.Error() }
func (e *FlagError) Unwrap() error { return e.Err }

func flagErrorf(flag, format string, args ...any) error {
	return &FlagError{Flag: flag, Err: fmt.Errorf(format, args...)}
}

// target is a Config after kubeconfig, defaults and checks.
type target struct {
	base      *url.URL // no trailing slash, no query, no user information
	files     tlsFiles
	rest      *rest.Config // of the kubeconfig: proxy, basic and exec authentication; nil without one
	token     string
	tokenFile string
	exchange  *url.URL // nil = no exchange
	insecure  *bool
}

// resolve reads the kubeconfig and checks everything that can be checked without the network.
func (c Config) resolve() (*target, error) {
	t := &target{token: strings.TrimSpace(c.Token), tokenFile: c.TokenFile, insecure: c.TLS.Insecure}
	server, flag := c.Server, "--provisioning-server-url"
	if c.Kubeconfig != "" {
		cfg, err := loadKubeconfig(c.Kubeconfig)
		if err != nil {
			return nil, err
		}
		t.adopt(c, cfg)
		if server == "" {
			server, flag = cfg.Host, "--kubeconfig"
		}
	}
	if server == "" && c.Transport != nil {
		server = "http://localhost"
	}
	if server == "" {
		return nil, fmt.Errorf("%w: set --provisioning-server-url or --kubeconfig", errNoServer)
	}
	base, err := parseBase(server)
	if err != nil {
		return nil, &FlagError{Flag: flag, Err: err}
	}
	t.base = base
	if err := t.checkTokens(c); err != nil {
		return nil, err
	}
	return t, t.checkTLS(c)
}

// Check returns what is wrong with the configuration and the files that it names. It makes no
// request.
func (c Config) Check() error {
	_, err := c.resolve()
	return err
}

// adopt takes from the kubeconfig what the flags leave open.
func (t *target) adopt(c Config, cfg *rest.Config) {
	cfg.QPS = -1
	if t.token == "" && t.tokenFile == "" {
		t.token, t.tokenFile = cfg.BearerToken, cfg.BearerTokenFile
		if t.tokenFile != "" {
			t.token = ""
		}
	} else {
		cfg.Username, cfg.Password, cfg.ExecProvider, cfg.AuthProvider = "", "", nil, nil
	}
	// Tokens are ours alone: files are read again and 401 leads to a refresh.
	cfg.BearerToken, cfg.BearerTokenFile = "", ""
	if t.insecure == nil && c.TLS.CAFile == "" {
		t.insecure = new(cfg.Insecure)
	}
	t.files = tlsFiles{
		ca:         material{name: "--kubeconfig certificate-authority", path: cfg.CAFile, data: cfg.CAData},
		cert:       material{name: "--kubeconfig client-certificate", path: cfg.CertFile, data: cfg.CertData},
		key:        material{name: "--kubeconfig client-key", path: cfg.KeyFile, data: cfg.KeyData},
		serverName: cfg.ServerName,
	}
	if c.TLS.CertFile != "" || c.TLS.KeyFile != "" {
		cfg.ExecProvider = nil
	}
	t.rest = cfg
}

func loadKubeconfig(path string) (*rest.Config, error) {
	// The library opens the files again, and would wait for a pipe.
	if _, err := fileid.Read(path, fileid.MaxSettings); err != nil {
		return nil, &FlagError{Flag: "--kubeconfig", Err: err}
	}
	file, err := clientcmd.LoadFromFile(path)
	if err == nil {
		err = checkReferences(file)
	}
	if err != nil {
		return nil, flagErrorf("--kubeconfig", "read %s: %w", path, text.RedactError(err))
	}
	cfg, err := clientcmd.NewDefaultClientConfig(*file, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, flagErrorf("--kubeconfig", "%s: %w", path, text.RedactError(err))
	}
	if cfg.ExecProvider != nil {
		cfg.ExecProvider.StdinUnavailable = true // the terminal belongs to the dashboard
	}
	return cfg, nil
}

// checkReferences reads the files that the current context of a kubeconfig names.
func checkReferences(file *api.Config) error {
	if err := clientcmd.ResolveLocalPaths(file); err != nil || api.MinifyConfig(file) != nil {
		return err // of a context that is not there, the library speaks
	}
	for _, named := range clientcmd.GetConfigFileReferences(file) {
		if _, err := fileid.Read(*named, fileid.MaxSettings); *named != "" && err != nil {
			return err
		}
	}
	return nil
}

// parseBase accepts a base URL with or without a trailing slash or "/apis".
func parseBase(raw string) (*url.URL, error) {
	raw = strings.TrimSpace(raw)
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("not a URL") // the error of url.Parse quotes the text, which may hold a password
	}
	switch {
	case u.Scheme == "" || u.Opaque != "":
		return nil, fmt.Errorf("%q has no scheme; write https://HOST[:PORT]", text.Redact(raw))
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, fmt.Errorf("scheme %q is not http or https", u.Scheme)
	case u.Hostname() == "":
		return nil, fmt.Errorf("%q has no host", text.Redact(raw))
	case u.User != nil:
		return nil, errors.New("user information in the URL is not accepted; use --token or --token-file")
	}
	path := strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/apis")
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimRight(path, "/")}, nil
}

func (t *target) checkTokens(c Config) error {
	if c.Token != "" && c.TokenFile != "" {
		return flagErrorf("--token-file", "--token and --token-file exclude each other")
	}
	if err := checkToken(t.token); err != nil {
		return &FlagError{Flag: "--token", Err: err}
	}
	if t.tokenFile != "" {
		if _, err := readToken(t.tokenFile); err != nil {
			return &FlagError{Flag: "--token-file", Err: err}
		}
	}
	if c.TokenExchangeURL == "" {
		return nil
	}
	u, err := url.Parse(strings.TrimSpace(c.TokenExchangeURL))
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return flagErrorf("--token-exchange-url", "not an http or https URL")
	}
	if u.User != nil {
		return flagErrorf("--token-exchange-url", "user information in the URL is not accepted; use --token or --token-file")
	}
	if t.token == "" && t.tokenFile == "" {
		return flagErrorf("--token-exchange-url", "needs a token to exchange: set --token or --token-file")
	}
	t.exchange = u
	return nil
}

// checkToken refuses what could not travel in a header. The value is not quoted in the error.
func checkToken(token string) error {
	for _, r := range token {
		if r < 0x21 || r == 0x7f {
			return errors.New("the token holds a space, a line break or a control character")
		}
	}
	return nil
}
