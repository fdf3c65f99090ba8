// Command dbcontroller moves a live service's database from one version to the next: the
// controller process, the commands of an operator, and a demonstration of it all.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"dbcontroller/cmd/dbcontroller/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := cli.Root().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "dbcontroller:", err)
		os.Exit(1)
	}
}
