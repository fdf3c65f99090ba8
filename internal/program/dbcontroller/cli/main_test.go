package cli

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// asProgram has the test binary be the program.
const asProgram = "DBCONTROLLER_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		Main(nil)
	}
	goleak.VerifyTestMain(m)
}
