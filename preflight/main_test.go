package preflight

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"dbcontroller/integration/localmongo/mongotest"
)

func TestMain(m *testing.M) {
	code := mongotest.Run(m)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
