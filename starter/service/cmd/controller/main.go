// Command controller moves the data of the tasks from version to version, and has all commands
// of an operator.
package main

import (
	"dbcontroller.dev"
	"dbcontroller.dev/starter/service/tasks"
)

func main() { dbcontroller.Controller(tasks.Service()) }
