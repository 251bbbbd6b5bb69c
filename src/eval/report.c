/* report.c - an evaluation as one page. */
#include "eval/report.h"
int report_open(report **out,const char*f,samite_error*e){(void)f;(void)e;*out=NULL;return 0;}
int report_coco(report*r,const char*k,const coco_result*c,const eval_set*t,const eval_set*d,const samite_eval_options*o,samite_error*e){(void)r;(void)k;(void)c;(void)t;(void)d;(void)o;(void)e;return 0;}
int report_write(report*r,const findings*f,const samite_eval_options*o,samite_error*e){(void)r;(void)f;(void)o;(void)e;return 0;}
void report_free(report*r){(void)r;}
