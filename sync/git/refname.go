package git

import (
	"fmt"

	"limpet/sync/auth"
	"limpet/sync/text"
)

// checkRefName is auth.CheckRefName with the name in its error.
func checkRefName(name string) error {
	if err := auth.CheckRefName(name); err != nil {
		return fmt.Errorf("%q is not a branch name: %w", text.Line(name, 100), err)
	}
	return nil
}
