package forge

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"limpet/sync/auth"
	"limpet/sync/netx"
)

// TestGitHubTimeout: an answer that takes just less than 20 s is waited for, one that
// takes more is not, and a caller who has less time is not held.
func TestGitHubTimeout(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	for _, test := range []struct{ takes, patience, ends time.Duration }{
		{19 * time.Second, time.Hour, 19 * time.Second}, {21 * time.Second, time.Hour, callTimeout},
		{19 * time.Second, 3 * time.Second, 3 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			hosts := New(Options{AllowInsecure: true})
			answer := func(there net.Conn) {
				defer there.Close()
				req, err := http.ReadRequest(bufio.NewReader(there))
				if err != nil {
					return
				}
				io.Copy(io.Discard, req.Body)
				time.Sleep(test.takes)
				body := fmt.Sprintf(`{"token": "t", "expires_at": %q}`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
				fmt.Fprintf(there, "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
					len(body), body)
			}
			hosts.client.Transport = &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
				here, there := net.Pipe()
				go answer(there)
				return here, nil
			}}
			ctx, cancel := context.WithTimeout(t.Context(), test.patience)
			defer cancel()
			begin := time.Now()
			token, err := hosts.InstallationToken(ctx, auth.AppIdentity{AppID: "12", Installation: "34", API: "http://ghe.example.com/api/v3",
				Secret: &auth.Credentials{PrivateKey: text, Source: "secret a/b"}})
			if took := time.Since(begin); took != test.ends {
				t.Errorf("it ends after %v, want %v: %v", took, test.ends, err)
			}
			switch {
			case test.ends == test.takes && (err != nil || token.Value != "t"):
				t.Errorf("after %v: %v", test.takes, err)
			case test.ends != test.takes && (netx.KindOf(err) != netx.Unavailable || !strings.Contains(err.Error(), "no complete answer") ||
				!strings.Contains(err.Error(), "GitHub App 12, installation 34, of secret a/b at POST http://ghe.example.com")):
				t.Errorf("after %v: %v", test.takes, err)
			}
			time.Sleep(time.Minute) // the other side ends
		})
	}
}
