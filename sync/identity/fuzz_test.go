package identity

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"limpet/sync/auth"
	"limpet/sync/netx"
)

// oneAnswer gives every request the same answer.
type oneAnswer struct {
	status int
	body   string
}

func (a oneAnswer) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(a.body))}, nil
}

// FuzzAnswers reads what token endpoints and metadata servers may answer: nothing
// panics, no token is taken that could not be sent, none without an end.
func FuzzAnswers(f *testing.F) {
	for _, seed := range []string{entra, googleToken, `{"access_token":"x","expires_in":"3599","expires_on":"1900000000"}`,
		`{"access_token":"x","expires_in":1e400}`,
		`{"access_token":"a b","expires_in":1}`, `{"error":{"message":"x","status":"Y"}}`, `{"error":"x","error_description":"y\r\nz"}`, "<a>",
		stsXML("AssumeRole"), keysJSON(time.Now()),
		`{"access_token":"x","expires_in":9223372036854775807}`, `{"AccessKeyId":1}`} {
		f.Add(seed)
	}
	file := filepath.Join(f.TempDir(), "token")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body string) {
		if token, err := parseGrant([]byte(body)); err == nil && (!auth.Printable(token.Value) || token.Life <= 0 || token.Life > longestLife) {
			t.Errorf("%q gives %q for %v", body, token.Value, token.Life)
		}
		env := map[string]string{"AWS_WEB_IDENTITY_TOKEN_FILE": file}
		for _, status := range []int{200, 400} {
			p := &aws{&registry{o: Options{Getenv: func(name string) string { return env[name] }},
				client: &netx.Client{Transport: oneAnswer{status, body}, Timeout: callTimeout}}}
			web := func(ctx context.Context, r Request) (auth.Token, error) { return p.webIdentity(ctx, r, "eu-west-1") }
			for _, get := range []func(context.Context, Request) (auth.Token, error){web, p.machine} {
				var keys awsKeys
				switch token, err := get(t.Context(), Request{}); {
				case err != nil && (strings.ContainsAny(err.Error(), "\n\r\x1b") || len(err.Error()) > 4000):
					t.Errorf("the error is %q", err)
				case err == nil && (json.Unmarshal([]byte(token.Value), &keys) != nil || !keys.valid() || token.Life <= 0):
					t.Errorf("%q gives keys for %v", body, token.Life)
				}
			}
		}
	})
}

// FuzzKeys reads what people put into secrets: JSON of Google accounts.
func FuzzKeys(f *testing.F) {
	f.Add(`{"type":"service_account","client_email":"a@b","private_key":"x","token_uri":"https://oauth2.googleapis.com/token"}`)
	f.Add(`{"type":"external_account","audience":"a","subject_token_type":"b","token_url":"https://sts.googleapis.com/v1/token","credential_source":{"file":"/x","format":{"type":"json","subject_token_field_name":"t"}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, own := range []bool{false, true} {
			a, err := parseGoogleAccount([]byte(text), own)
			if err != nil {
				if strings.Contains(err.Error(), canary) {
					t.Error(err)
				}
				continue
			}
			if a.Type == "external_account" && !own || a.Type == "service_account" && (!auth.Printable(a.Email) || a.TokenURI == "") {
				t.Errorf("%q is taken: %+v", text, a)
			}
			if email := a.impersonated(); email != "" && !auth.Printable(email) {
				t.Errorf("the user is %q", email)
			}
		}
	})
}
