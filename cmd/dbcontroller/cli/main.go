package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Main runs the command line, and is all that the main function of a service's own
// controller has to call: register adds the service's transformers, and lenses of
// fixed-name kinds come from the configuration as ever. With nil it is the program
// dbcontroller, which knows the samples and has the demonstration.
func Main(register Register) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := rootFor(register).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dbcontroller:", err)
		os.Exit(1)
	}
}

func rootFor(register Register) *cobra.Command {
	if register == nil {
		return Root()
	}
	return commands(register)
}
