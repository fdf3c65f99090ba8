// Command dbcontroller moves a live service's database from one version to the next: the
// controller process, the commands of an operator, and a demonstration of it all.
package main

import "dbcontroller/cmd/dbcontroller/cli"

func main() { cli.Main(nil) }
