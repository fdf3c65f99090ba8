package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Main runs the command line, and is all that the main function of a service's own
// controller has to call: register adds the service's transformers, and lenses of
// fixed-name kinds come from the configuration as ever. With nil it is the program
// dbcontroller, which has these lenses alone.
func Main(register Register) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := Command(register).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dbcontroller:", err)
		os.Exit(1)
	}
}
