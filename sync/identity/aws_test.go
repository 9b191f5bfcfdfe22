package identity

import (
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"limpet/sync/netx"
)

const codecommit = "https://git-codecommit.eu-west-1.amazonaws.com/v1/repos/site"

// TestSignature compares with the vector get-vanilla that AWS publishes, with what
// the signer of aws-sdk-go-v2 1.47 gives for a request to STS, and with a
// calculation of the form of git-remote-codecommit in another language.
func TestSignature(t *testing.T) {
	t.Parallel()
	k := awsKeys{ID: "AKIDEXAMPLE", Secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}
	at := time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC)
	user, password := k.gitPassword(at, "us-east-1", "git-codecommit.us-east-1.amazonaws.com", "/v1/repos/test-repo-1")
	if want := "20150830T123600Z33759aa4bfb16bec1c70a7921d7abba810cec43b334a8856179ecd95bff45be6"; password != want || user != "AKIDEXAMPLE" {
		t.Errorf("for Git: %s %s, want %s", user, password, want)
	}
	if user, _ := (awsKeys{k.ID, k.Secret, "SESSION"}).gitPassword(at, "us-east-1", "h", "/p"); user != "AKIDEXAMPLE%SESSION" {
		t.Errorf("with a session: user %s", user)
	}
}

// keysJSON is the documented answer of the container's agent and of the machine.
func keysJSON(until time.Time) string {
	return fmt.Sprintf(`{"Code":"Success","Type":"AWS-HMAC","AccessKeyId":"ASIASESSION","SecretAccessKey":"%s","Token":"session-%s","Expiration":%q,"LastUpdated":"2026-11-20T12:00:00Z"}`,
		canary, canary, until.UTC().Format(time.RFC3339))
}

// stsXML is the documented answer of STS.
func stsXML(action string) string {
	return fmt.Sprintf(`<%[1]sResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><%[1]sResult><Credentials><SessionToken>session-%[2]s</SessionToken>
	<SecretAccessKey>%[2]s</SecretAccessKey><Expiration>%[3]s</Expiration><AccessKeyId>ASIASESSION</AccessKeyId></Credentials></%[1]sResult></%[1]sResponse>`,
		action, canary, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
}

func TestAWS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	write(t, token, "projected-"+canary+"\n")
	web := "POST /\nContent-Type: application/x-www-form-urlencoded\nAction=AssumeRoleWithWebIdentity\nRoleArn=arn:aws:iam::1:role/site\nRoleSessionName=limpet\nVersion=2011-06-15\nWebIdentityToken=projected-" + canary
	cases := []struct {
		name string
		env  []string
		user string
		want []string
	}{
		{"keys", []string{"AWS_ACCESS_KEY_ID", "AKIDENV", "AWS_SECRET_ACCESS_KEY", canary}, "AKIDENV", nil},
		{"keys of a session", []string{"AWS_ACCESS_KEY_ID", "ASIAENV", "AWS_SECRET_ACCESS_KEY", canary, "AWS_SESSION_TOKEN", "t0ken"},
			"ASIAENV%t0ken", nil},
		{"web identity", []string{"AWS_WEB_IDENTITY_TOKEN_FILE", token, "AWS_ROLE_ARN", "arn:aws:iam::1:role/site"}, "ASIASESSION%session-" +
			canary, []string{web}},
		{"machine", nil, "ASIASESSION%session-" + canary, []string{
			"PUT /latest/api/token\nX-Aws-Ec2-Metadata-Token-Ttl-Seconds: 300",
			"GET /latest/meta-data/iam/security-credentials/\nX-Aws-Ec2-Metadata-Token: imds-" + canary,
			"GET /latest/meta-data/iam/security-credentials/site-role\nX-Aws-Ec2-Metadata-Token: imds-" + canary}},
	}
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			until := time.Now().Add(time.Hour)
			c.on("POST /", func(w http.ResponseWriter, _ *http.Request, form url.Values) {
				w.Header().Set("Content-Type", "text/xml")
				fmt.Fprint(w, stsXML(form.Get("Action")))
			})
			c.says("PUT /latest/api/token", "imds-"+canary, "Content-Type", "text/plain")
			c.says("GET /latest/meta-data/iam/security-credentials/", "site-role\n", "Content-Type", "text/plain")
			c.says("GET /latest/meta-data/iam/security-credentials/site-role", keysJSON(until), "Content-Type", "text/plain")
			p := here(t, "aws", codecommit, "AWS_ENDPOINT_URL_STS", c.URL, "AWS_EC2_METADATA_SERVICE_ENDPOINT", c.URL)
			for i := 0; i+1 < len(test.env); i += 2 {
				p.env[test.env[i]] = strings.ReplaceAll(test.env[i+1], "$cloud", c.URL)
			}
			got := p.must(t)
			if got.Username != test.user || len(got.Password) != len("20060102T150405Z")+64 || got.Bearer != "" {
				t.Errorf("user %s, password %s", got.Username, got.Password)
			}
			keys := awsKeys{test.user, canary, ""}
			keys.ID, keys.Session, _ = strings.Cut(test.user, "%")
			at, err := time.Parse("20060102T150405Z", got.Password[:16])
			if _, want := keys.gitPassword(at, "eu-west-1", "git-codecommit.eu-west-1.amazonaws.com", "/v1/repos/site"); err != nil ||
				got.Password != want || time.Since(at) > time.Minute {
				t.Errorf("the password is %s, want %s", got.Password, want)
			}
			equal(t, "requests", c.requests(), test.want)
			p.lookup.URL += "-2" // the keys are kept, the password is of one repository
			if again := p.must(t); again.Password == got.Password {
				t.Error("another repository has the same password")
			}
			equal(t, "later requests", c.requests(), nil)
			if got.Refused(); len(test.want) > 0 {
				p.must(t)
				if len(c.requests()) != len(test.want) {
					t.Error("after a refusal nobody asks for new keys")
				}
			}
		})
	}
}

func TestAWSBorders(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	env := []string{"AWS_ACCESS_KEY_ID", "AKID", "AWS_SECRET_ACCESS_KEY", canary, "AWS_EC2_METADATA_SERVICE_ENDPOINT", c.URL}
	for _, bad := range []string{
		"https://git-codecommit.eu-west-1.amazonaws.com.example.com/v1/repos/x", "https://s3.eu-west-1.amazonaws.com/v1/repos/x",
		"https://x.git-codecommit.eu-west-1.amazonaws.com/v1/repos/x", "https://git.example.com/x",
		"http://git-codecommit.eu-west-1.amazonaws.com/v1/repos/x",
	} {
		here(t, "aws", bad, env...).refuses(t, netx.Invalid)
	}
	for good, region := range map[string]string{
		"https://git-codecommit-fips.us-east-2.amazonaws.com/v1/repos/x":          "us-east-2",
		"https://git-codecommit.cn-north-1.amazonaws.com.cn/v1/repos/x":           "cn-north-1",
		"https://vpce-1-2.git-codecommit.us-east-2.vpce.amazonaws.com/v1/repos/x": "us-east-2",
	} {
		p := here(t, "aws", good, env...)
		p.must(t)
		r := Request{}
		r.Address.Scheme, r.Address.Host = "https", strings.Split(good, "/")[2]
		if got, err := r.region(); err != nil || got != region {
			t.Errorf("%s has region %q, %v", good, got, err)
		}
	}
	// A host of one's own, as the config file says.
	p := here(t, "aws", "https://git.example.com/v1/repos/x", env...).with("AWS_REGION", "eu-west-1")
	p.owner = true
	p.must(t)
	p = here(t, "aws", codecommit, env...).with("AWS_ACCESS_KEY_ID", "AKIDOTHER") // the environment does not complete it
	p.refuses(t, netx.Invalid, "AWS_SECRET_ACCESS_KEY")
	here(t, "aws", codecommit, "AWS_EC2_METADATA_DISABLED", "true").refuses(t, netx.Invalid, "no identity of AWS")
	for _, name := range []string{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"} {
		here(t, "aws", codecommit, name, "/v1/credentials", "AWS_EC2_METADATA_SERVICE_ENDPOINT", c.URL).
			refuses(t, netx.Invalid, "AWS_CONTAINER_*", "use AWS_ROLE_ARN with AWS_WEB_IDENTITY_TOKEN_FILE")
	}
	if asked := c.requests(); len(asked) > 0 {
		t.Errorf("somebody was asked: %q", asked)
	}
	// What AWS says is told, without the secret.
	c.on("POST /", func(w http.ResponseWriter, _ *http.Request, form url.Values) {
		w.WriteHeader(403)
		fmt.Fprintf(w, "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>Not authorized with %s</Message></Error><RequestId>1</RequestId></ErrorResponse>", form.Get("WebIdentityToken"))
	})
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, canary)
	here(t, "aws", codecommit, "AWS_WEB_IDENTITY_TOKEN_FILE", file, "AWS_ROLE_ARN", "arn:aws:iam::1:role/site", "AWS_ENDPOINT_URL_STS", c.URL).
		refuses(t, netx.Forbidden, "AccessDenied: Not authorized with [redacted]", "role arn:aws:iam::1:role/site", "POST "+c.URL)
	// The machine answers keys that have ended.
	c.says("PUT /latest/api/token", "x", "Content-Type", "text/plain")
	c.says("GET /latest/meta-data/iam/security-credentials/", "r", "Content-Type", "text/plain")
	c.says("GET /latest/meta-data/iam/security-credentials/r", keysJSON(time.Now().Add(-time.Minute)))
	here(t, "aws", codecommit, "AWS_EC2_METADATA_SERVICE_ENDPOINT", c.URL).refuses(t, netx.Protocol, "role of this machine", "have ended")
}
