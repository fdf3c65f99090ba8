// Command controller migrates the data of the tasks between versions. It also has all commands of
// an operator.
package main

import (
	"dbcontroller.dev"
	"dbcontroller.dev/examples/starter/service/tasks"
)

func main() { dbcontroller.Controller(tasks.Service()) }
