package auth

import (
	"context"
	"testing"
)

// TestForget: the tokens of one owner are made anew, those of others are not, and an
// attempt that is under way comes to its end.
func TestForget(t *testing.T) {
	t.Parallel()
	tokens := NewTokens(0)
	minted := map[TokenKey]int{}
	get := func(key TokenKey) {
		t.Helper()
		_, err := tokens.Token(t.Context(), key, func(context.Context) (Token, error) { minted[key]++; return Token{Value: "x"}, nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	a, b, other := TokenKey{Owner: "1", Scope: "a"}, TokenKey{Owner: "1", Scope: "b"}, TokenKey{Owner: "2", Scope: "a"}
	for range 2 {
		get(a)
		get(b)
		get(other)
	}
	tokens.Forget("1")
	get(a)
	get(b)
	get(other)
	if minted[a] != 2 || minted[b] != 2 || minted[other] != 1 {
		t.Errorf("minted %v", minted)
	}
	late := TokenKey{Owner: "3"}
	token, err := tokens.Token(t.Context(), late, func(context.Context) (Token, error) { tokens.Forget("3"); return Token{Value: "late"}, nil })
	if err != nil || token.Value != "late" {
		t.Errorf("token under way: %v, %v", token, err)
	}
}
