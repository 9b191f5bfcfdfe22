package api

import "strings"

// ConditionVerified tells whether what is pulled is signed by whom it has to be. It
// is limpet's own, and there only while a Repository asks for it (AnnoGitVerify).
const ConditionVerified = "limpet/SourceVerified"

// Verification is what the condition was judged by. Its words are part of the message, the
// only place of a status that is kept by all who write conditions.
type Verification struct {
	Trust  string // digest of mode, principals and keys
	Object string // hash of the tag object, or of the commit
}

// The words of a verdict in a message, at its end.
const (
	verdictTrust  = " [trust "
	verdictObject = ", object "
	verdictEnd    = "]"
)

// Message is text with the verdict behind it.
func (v Verification) Message(text string) string {
	text += verdictTrust + v.Trust
	if v.Object != "" {
		text += verdictObject + v.Object
	}
	return text + verdictEnd
}

// VerificationOf reads the verdict from the conditions of a status, the zero Verdict when
// there is none.
func VerificationOf(conditions []Condition) (v Verification) {
	for _, c := range conditions {
		at := strings.LastIndex(c.Message, verdictTrust)
		if c.Type != ConditionVerified || at < 0 {
			continue
		}
		words, ended := strings.CutSuffix(c.Message[at+len(verdictTrust):], verdictEnd)
		if !ended {
			continue
		}
		v.Trust, v.Object, _ = strings.Cut(words, verdictObject)
	}
	return v
}
