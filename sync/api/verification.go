package api

import "strings"

// ConditionVerified is the condition of the signature of what is pulled. It is limpet's
// own, and set only while a Repository asks for it (AnnoGitVerify).
const ConditionVerified = "limpet/SourceVerified"

// Verification is the basis of the condition. It is part of the message, the only member
// of a condition that all writers of conditions keep.
type Verification struct {
	Trust  string // digest of mode, principals and keys
	Object string // hash of the tag object, or of the commit
}

// The form of a Verification at the end of a message.
const (
	trustPrefix  = " [trust "
	objectPrefix = ", object "
	trustSuffix  = "]"
)

// Message returns text with the Verification appended.
func (v Verification) Message(text string) string {
	text += trustPrefix + v.Trust
	if v.Object != "" {
		text += objectPrefix + v.Object
	}
	return text + trustSuffix
}

// VerificationOf returns the Verification in the conditions of a status, zero when there is none.
func VerificationOf(conditions []Condition) (v Verification) {
	for _, c := range conditions {
		at := strings.LastIndex(c.Message, trustPrefix)
		if c.Type != ConditionVerified || at < 0 {
			continue
		}
		encoded, ended := strings.CutSuffix(c.Message[at+len(trustPrefix):], trustSuffix)
		if !ended {
			continue
		}
		v.Trust, v.Object, _ = strings.Cut(encoded, objectPrefix)
	}
	return v
}
