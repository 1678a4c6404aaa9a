// Command prometheus-rules reads a rules file and a list of expressions as Prometheus does, and says what is wrong with them.
//
//	prometheus-rules RULES EXPRESSIONS
//
// RULES is a rules file of Prometheus, templates of its annotations included; EXPRESSIONS holds one expression per line. It prints how many of
// each it read.
package main

import (
	"bufio"
	"fmt"
	"os"

	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: prometheus-rules RULES EXPRESSIONS")
		os.Exit(2)
	}
	rules, wrong := readRules(os.Args[1])
	expressions, further := readExpressions(os.Args[2])
	for _, one := range append(wrong, further...) {
		fmt.Fprintln(os.Stderr, one)
	}
	if len(wrong)+len(further) > 0 {
		os.Exit(1)
	}
	fmt.Printf("%d rules, %d expressions\n", rules, expressions)
}

func readRules(path string) (int, []error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, []error{err}
	}
	groups, wrong := rulefmt.Parse(text, false)
	count := 0
	if groups != nil {
		for _, group := range groups.Groups {
			count += len(group.Rules)
		}
	}
	return count, wrong
}

func readExpressions(path string) (int, []error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, []error{err}
	}
	defer file.Close()
	var wrong []error
	count := 0
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if _, err := parser.ParseExpr(lines.Text()); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", lines.Text(), err))
		}
		count++
	}
	if err := lines.Err(); err != nil {
		wrong = append(wrong, err)
	}
	return count, wrong
}
