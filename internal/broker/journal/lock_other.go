//go:build !unix

package journal

import (
	"errors"
	"os"
)

// take cannot lock here so that a kill ends it, and then better not at all.
func take(*os.File) error { return errors.ErrUnsupported }
