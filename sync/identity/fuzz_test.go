package identity

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

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
	at := time.Now()
	f.Fuzz(func(t *testing.T, body string) {
		if _, token, err := parseGrant([]byte(body), at); err == nil && (!printable(token.Value) || token.Life <= 0 || token.Life > longestLife) {
			t.Errorf("%q gives %q for %v", body, token.Value, token.Life)
		}
		c := call{url: "http://x"}
		for _, parse := range []func([]byte) (awsKeys, time.Time, error){parseSTS, parseKeys} {
			keys, until, err := parse([]byte(body))
			if s, err := c.session(keys, until, err, at); err == nil && (!printable(s.ID) || s.life <= 0) {
				t.Errorf("%q gives keys for %v", body, s.life)
			}
		}
		res := &http.Response{StatusCode: 400, Header: http.Header{}}
		if _, err := c.classify(res, []byte(body), ""); strings.ContainsAny(err.Error(), "\n\r\x1b") || len(err.Error()) > 4000 {
			t.Errorf("the error is %q", err)
		}
	})
}

// FuzzKeys reads what people put into secrets: JSON of Google accounts, tokens of
// other parties.
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
			if a.Type == "external_account" && !own || a.Type == "service_account" && (!printable(a.Email) || a.TokenURI == "") {
				t.Errorf("%q is taken: %+v", text, a)
			}
			if email := a.impersonated(); email != "" && !printable(email) {
				t.Errorf("the user is %q", email)
			}
		}
		if token, err := (subjectSource{}).parse([]byte(text)); err == nil && !printable(token) {
			t.Errorf("the token is %q", token)
		}
	})
}
